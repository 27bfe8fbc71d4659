// The columns of /api/v1/history made into what a chart draws: one axis of time for all modes,
// bands, and holes where nothing was measured.

const COLUMNS = ["at_s", "n", "marked", "median", "p10", "p90", "minimum", "maximum", "drivers"];
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

/**
 * Lay a question on a grid of steps, so that the same is asked until a step is over.
 * @param {[number, number]} span Unix seconds
 * @param {number} width of the chart in pixels; two of them are worth a point
 */
export function grid([from, to], width) {
  const wanted = Math.min(MOST_POINTS, Math.max(LEAST_POINTS, Math.floor(width / 2)));
  const least = to - from > RUNS_S ? HOUR_S : 1;
  const step = STEPS_S.find((one) => one >= Math.max((to - from) / wanted, least)) ?? STEPS_S.at(-1);
  const since = Math.floor(from / step) * step;
  const until = Math.max(Math.ceil(to / step), since / step + 2) * step;
  return { since, until, points: (until - since) / step, step };
}

/** Put what is newer in the place of what it overlaps, and forget what is before `since`. */
export function joined(old, fresh, from, since) {
  const found = new Map(old.map((one) => [key(one), one]));
  for (const one of fresh) if (!found.has(key(one))) found.set(key(one), empty(one));
  return [...found.values()].map((one) => {
    const more = fresh.find((other) => key(other) === key(one));
    const begin = first(one.at_s, since);
    const end = first(one.at_s, from);
    const columns = COLUMNS.map((name) => [
      name,
      [...one[name].slice(begin, Math.max(begin, end)), ...(more?.[name] ?? [])],
    ]);
    return { ...one, ...Object.fromEntries(columns) };
  });
}

/** The newest beginning of a step that is known; `otherwise` where nothing is. */
export function newest(series, otherwise) {
  return Math.max(otherwise, ...series.map((one) => one.at_s.at(-1) ?? -Infinity));
}

/**
 * Shape: xs, then for each mode its median, p90 and p10; `rows` tells of each mode and place which
 * series and which point of it that is. `null` is a hole, `undefined` only that another mode has
 * a point there.
 */
export function aligned(series, modes, step, now_s) {
  const tracks = modes.map((mode) => track(series, mode, step, now_s));
  const xs = [...new Set(tracks.flatMap((one) => [...one.keys()]))].sort((a, b) => a - b);
  const rows = tracks.map((one) => xs.map((x) => one.get(x)));
  const data = [xs];
  for (const row of rows) {
    for (const name of ["median", "p90", "p10"]) {
      data.push(
        row.map((told) => (told ? (told.series[name][told.index] ?? null) : told)),
      );
    }
  }
  return { data, rows };
}

/** Where single points stand between holes: no line shows them. */
export function lonely(values) {
  const found = [];
  let before = null;
  for (let index = 0; index < values.length; index += 1) {
    if (values[index] === undefined) continue;
    if (values[index] !== null && before === null) {
      let next = index + 1;
      while (values[next] === undefined && next < values.length) next += 1;
      if ((values[next] ?? null) === null) found.push(index);
    }
    before = values[index];
  }
  return found;
}

/** One mode over time: moment -> {series, index}, or null for a hole. */
function track(series, mode, step, now_s) {
  const found = new Map();
  const versions = series.filter((one) => one.mode === mode);
  versions.sort((a, b) => (a.version ?? 0) - (b.version ?? 0));
  for (const one of versions) {
    // Figures of two methods do not compare: the newer one begins after a hole.
    const points = one.at_s.map((at_s, index) => [Math.min(at_s + step / 2, now_s), index]);
    const usual = middle(points.slice(1).map(([x], index) => x - points[index][0])) ?? step;
    if (points.length > 0 && found.size > 0) found.set(points[0][0] - step / 4, null);
    points.forEach(([x, index], place) => {
      const last = points[place - 1]?.[0] ?? x;
      if (x - last > HOLE * Math.max(usual, step)) found.set((x + last) / 2, null);
      found.set(x, { series: one, index });
    });
  }
  return new Map([...found].sort(([a], [b]) => a - b));
}

function middle(values) {
  const ordered = values.toSorted((a, b) => a - b);
  return ordered[Math.floor(ordered.length / 2)];
}

function first(ordered, from) {
  const index = ordered.findIndex((one) => one >= from);
  return index < 0 ? ordered.length : index;
}

function key(one) {
  return `${one.gpu} ${one.mode} ${one.version}`;
}

function empty(one) {
  return { ...one, ...Object.fromEntries(COLUMNS.map((name) => [name, []])) };
}
