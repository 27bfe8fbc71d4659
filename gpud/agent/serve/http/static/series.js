// Figures of the history as charts draw them: one axis of time for all metrics, bands, and holes
// where nothing was measured.

import { shared } from "./net.js";
import { query } from "./view.js";

/** How much wider than usual the way to the next point may be: one run may be put off. */
const HOLE = 2.5;
const RATES = new Set(["bytes_per_second", "flops_per_second", "operations_per_second"]);
/** So far from its level a metric is drawn: 12 % are at least 15 % of the height. */
const [LOWEST, HIGHEST, LEAST, ROOM] = [0.7, 1.35, 0.12, 0.06];
const MOST = 0.995; // of a line's points are in sight

/** Read metrics in what is looked at: for each {step, series}. Errors: those of `shared`. */
export function read(metrics) {
  return Promise.all(metrics.map(async ({ gpu, probe, mode }) => {
    const { step_s, series } = await shared(`/api/v1/history?${query({ probe, gpu })}`);
    return { step: step_s, series: series.filter((each) => each.mode === mode) };
  }));
}

/**
 * Put answers on one axis. Shape: xs, then for each metric its median, p90 and p10; `rows` has for
 * each metric and place which series and which point of it that is. `null` is a hole, `undefined`
 * only that another metric has a point there.
 */
export function aligned(answers, now_s) {
  const tracks = answers.map(({ series, step }) => track(series, step, now_s));
  const xs = [...new Set(tracks.flatMap((points) => [...points.keys()]))].sort((a, b) => a - b);
  const rows = tracks.map((points) => xs.map((x) => points.get(x)));
  const value = (name) => (point) => (point ? (point.series[name][point.index] ?? null) : point);
  const columns = rows.map((row) => ["median", "p90", "p10"].map((name) => row.map(value(name))));
  return { xs, columns, rows };
}

/** A figure as the time for the same work, in percent of what is usual. */
export function percent(value, usual, unit) {
  if (!value || !usual) return value && null;
  return 100 * (RATES.has(unit) ? usual / value : value / usual);
}

/** What is usual, or while that is being learned the middle of what is there. */
export function level(usual, values) {
  return usual ?? middle(values.filter((value) => value != null)) ?? null;
}

/** From where to where an axis goes: about the level, whatever a few single runs were. */
export function bounds(lines, level) {
  if (level === null) return [0, 1];
  const ends = lines.flatMap((values) => {
    const sorted = values.filter((value) => value != null).sort((a, b) => a - b);
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))] ?? level;
    return [at(1 - MOST), at(MOST)];
  });
  let [low, high] = [Math.min(level, ...ends), Math.max(level, ...ends)];
  const half = Math.max((LEAST * level - (high - low)) / 2, 0);
  [low, high] = [low - half, high + half];
  return [low - (high - low) * ROOM, high + (high - low) * ROOM];
}

/** A value within what a chart of several metrics shows. */
export function within(value, level) {
  return value == null ? value : Math.min(Math.max(value, LOWEST * level), HIGHEST * level);
}

/** Where single points stand between holes: no line shows them. */
export function lonely(values) {
  const points = values.map((_, index) => index).filter((index) => values[index] !== undefined);
  const hole = (place) => (values[points[place]] ?? null) === null;
  return points.filter((_, place) => !hole(place) && hole(place - 1) && hole(place + 1));
}

/** One metric over time: moment -> {series, index}, or null for a hole. */
function track(series, step, now_s) {
  const track = new Map();
  const versions = series.toSorted((a, b) => (a.version ?? 0) - (b.version ?? 0));
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
