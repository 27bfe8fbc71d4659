// The columns of /api/v1/history made into what a chart draws: one axis of time for all modes,
// bands, and holes where nothing was measured.

const MOST_POINTS = 600;
const LEAST_POINTS = 60;
const HOUR_S = 3600;
const DAY_S = 86400;
/** The widths of steps that the API has. */
const STEPS_S = [
  ...[1, 2, 3, 5, 10, 15, 20, 30],
  ...[1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30].map((minutes) => 60 * minutes),
  ...[1, 2, 3, 4, 6, 8, 12].map((hours) => HOUR_S * hours),
  ...Array.from({ length: 12 }, (_, power) => 2 ** power * DAY_S),
];
const RUNS_S = 2 * DAY_S; // what is longer is answered from whole hours
/** How much wider than usual the way to the next point may be: one run may be put off. */
const HOLE = 2.5;

/** Lay a question about [from, to] on a grid of steps; two pixels are worth a point. */
export function grid([from, to], width) {
  const points = Math.min(MOST_POINTS, Math.max(LEAST_POINTS, Math.floor(width / 2)));
  const least = Math.max((to - from) / points, to - from > RUNS_S ? HOUR_S : 1);
  const step = STEPS_S.find((each) => each >= least) ?? STEPS_S.at(-1);
  const since = Math.floor(from / step) * step;
  const until = Math.max(Math.ceil(to / step), since / step + 2) * step;
  return { since, until, points: (until - since) / step, step };
}

/**
 * Shape: xs, then for each mode its median, p90 and p10; `rows` has for each mode and place which
 * series and which point of it that is. `null` is a hole, `undefined` only that another mode has
 * a point there.
 */
export function aligned(series, modes, step, now_s) {
  const tracks = modes.map((mode) => track(series, mode, step, now_s));
  const xs = [...new Set(tracks.flatMap((points) => [...points.keys()]))].sort((a, b) => a - b);
  const rows = tracks.map((points) => xs.map((x) => points.get(x)));
  const value = (name) => (point) => (point ? (point.series[name][point.index] ?? null) : point);
  const columns = rows.flatMap((row) => ["median", "p90", "p10"].map((name) => row.map(value(name))));
  return { data: [xs, ...columns], rows };
}

/** Where single points stand between holes: no line shows them. */
export function lonely(values) {
  const points = values.map((_, index) => index).filter((index) => values[index] !== undefined);
  const hole = (place) => (values[points[place]] ?? null) === null;
  return points.filter((_, place) => !hole(place) && hole(place - 1) && hole(place + 1));
}

/** One mode over time: moment -> {series, index}, or null for a hole. */
function track(series, mode, step, now_s) {
  const track = new Map();
  const versions = series.filter((each) => each.mode === mode);
  versions.sort((a, b) => (a.version ?? 0) - (b.version ?? 0));
  for (const version of versions) {
    // Figures of two methods do not compare: the newer one begins after a hole.
    const points = version.at_s.map((at_s, index) => [Math.min(at_s + step / 2, now_s), index]);
    const usual = middle(points.slice(1).map(([x], index) => x - points[index][0])) ?? step;
    if (points.length > 0 && track.size > 0) track.set(points[0][0] - step / 4, null);
    points.forEach(([x, index], place) => {
      const last = points[place - 1]?.[0] ?? x;
      if (x - last > HOLE * Math.max(usual, step)) track.set((x + last) / 2, null);
      track.set(x, { series: version, index });
    });
  }
  return new Map([...track].sort(([a], [b]) => a - b));
}

function middle(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}
