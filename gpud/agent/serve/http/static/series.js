// The columns of /api/v1/history made into what a chart draws: one axis of time for all modes,
// bands, and holes where nothing was measured.

/** How much wider than usual the way to the next point may be: one run may be put off. */
const HOLE = 2.5;

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
