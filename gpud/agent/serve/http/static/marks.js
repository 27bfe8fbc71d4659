// What is drawn into a chart besides its lines: other drivers, the usual level, and what is slower.

import { colour, faint, measured, stroke, write } from "./frame.js";
import { shared } from "./net.js";
import { first, query } from "./view.js";

const DRIVER = "driver_version";
const AT_MOST = 200;

/** The drivers that came, the alerts and the state, of the time that is looked at. */
export function happenings() {
  const since = query({}).get("since");
  return Promise.all([
    shared(`/api/v1/events?kind=${DRIVER}&since=${since}&limit=${AT_MOST}`),
    shared(`/api/v1/alerts?since=${since}&limit=${AT_MOST}`),
    shared("/api/v1/status"),
  ]);
}

/** The drivers that came, the oldest first; none for the CPU. */
export function drivers([{ events }], gpu) {
  if (gpu === "cpu") return [];
  return events
    .filter((event) => event.kind === DRIVER && event.old && event.new)
    .sort((a, b) => a.at_s - b.at_s);
}

/** What concerns one metric: the usual level, and when it was slower. */
export function concerning([, alerts, status], { gpu, probe, mode }) {
  const uuid = gpu === "cpu" ? null : gpu;
  const ours = (stream) =>
    (stream.uuid ?? stream.gpu) === uuid && stream.probe === probe && stream.mode === mode;
  const streams = status.streams.filter((stream) => stream.uuid === uuid && ours(stream));
  const open = streams.flatMap(({ open: alarms }) => alarms.map((alarm) => ({
    since_s: alarm.since_s,
    until_s: Infinity,
    slowdown: Math.max(alarm.effect.ratio, 1 / alarm.effect.ratio), // of figures, not of time
    why: alarm.kind === "driver" ? `driver ${alarm.old_driver} → ${alarm.new_driver}` : alarm.kind,
  })));
  const past = alerts.alerts.filter((alert) => alert.ends_s).flatMap((alert) =>
    (alert.evidence ?? []).filter(({ stream }) => stream && ours(stream)).map((evidence) => ({
      since_s: evidence.since_s,
      until_s: alert.ends_s,
      slowdown: evidence.slowdown,
      why: evidence.kind,
    })));
  const newest = (a, b) => a.version - b.version || (a.last_judged_s ?? 0) - (b.last_judged_s ?? 0);
  return {
    slower: [...past, ...open],
    usual: streams.filter((stream) => stream.usual !== null).sort(newest).at(-1)?.usual ?? null,
  };
}

/** Whether a metric is slower at a moment. */
export function isSlower(slower, at_s) {
  return slower.some(({ since_s, until_s }) => since_s <= at_s && at_s < until_s);
}

/** Fill what lies between a line and its level while it is slower, and draw that part in red. */
export function shade(u, column, level, slower) {
  const { ctx, bbox } = u;
  const [xs, ys] = [u.data[0], u.data[column]];
  const floor = u.valToPos(level, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const { since_s, until_s } of slower) {
    for (const run of runs(xs, ys, since_s, until_s)) {
      const points = run.map((index) => [u.valToPos(xs[index], "x", true), u.valToPos(ys[index], "y", true)]);
      const path = () => points.forEach((point, place) => ctx[place ? "lineTo" : "moveTo"](...point));
      ctx.beginPath();
      path();
      ctx.lineTo(points.at(-1)[0], floor);
      ctx.lineTo(points[0][0], floor);
      ctx.fillStyle = faint("--bad");
      ctx.fill();
      ctx.beginPath();
      path();
      ctx.strokeStyle = colour("--bad");
      ctx.lineWidth = 2.25 * devicePixelRatio;
      ctx.lineJoin = "round";
      ctx.stroke();
    }
  }
  ctx.restore();
}

/** The places of a line between two moments, broken where nothing was measured. */
export function runs(xs, ys, since_s, until_s) {
  const made = [[]];
  xs.forEach((x, index) => {
    if (ys[index] === null) made.push([]);
    else if (ys[index] !== undefined && x >= since_s && x < until_s) made.at(-1).push(index);
  });
  return made.filter((run) => run.length > 0);
}

/** Draw the usual level, from gpud's first run on. */
export function drawLevel(u, level) {
  const { bbox } = u;
  const left = u.valToPos(Math.max(first(), u.scales.x.min), "x", true);
  const [y, right] = [u.valToPos(level, "y", true), bbox.left + bbox.width];
  if (y < bbox.top || y > bbox.top + bbox.height || left >= right) return;
  stroke(u, "--quiet", [3, 4], [[left, y], [right, y]]);
}

/** Name lines at their right ends, below them; the lowest first. */
export function label(u, labels) {
  const { bbox } = u;
  const high = 15 * devicePixelRatio;
  let free = bbox.top + bbox.height - high;
  for (const { text, value, fires } of labels.toSorted((a, b) => a.value - b.value)) {
    const y = Math.min(u.valToPos(value, "y", true) + 3 * devicePixelRatio, free);
    const left = bbox.left + bbox.width - measured(u, text) - 4 * devicePixelRatio;
    write(u, text, left, y, fires ? "--bad" : "--text");
    free = y - high;
  }
}

/** Draw a line where another driver came, with its name where there is room; the newest first. */
export function changes(u, drivers) {
  const { bbox } = u;
  const [y, gap] = [bbox.top - 16 * devicePixelRatio, 4 * devicePixelRatio];
  let free = bbox.left + bbox.width; // what is right of it is written upon
  for (const driver of drivers.toReversed()) {
    if (driver.at_s < u.scales.x.min || driver.at_s > u.scales.x.max) continue;
    const x = u.valToPos(driver.at_s, "x", true);
    stroke(u, "--text", [5, 3], [[x, bbox.top - gap], [x, bbox.top + bbox.height]]);
    const text = `driver ${driver.old} → ${driver.new}`;
    const width = measured(u, text);
    const left = x + gap + width <= free ? x + gap : x - gap - width;
    if (left < 0 || left + width > free) continue; // the page lists it too
    write(u, text, left, y);
    free = left - 2 * gap;
  }
}
