// What is drawn into a chart of history besides its lines: other drivers, regressions, usual levels.

import { faint, measured, stroke, write } from "./frame.js";
import { json } from "./net.js";
import { first } from "./view.js";

const DRIVER = "driver_version";
const AT_MOST = 200;
const ROUND_S = 300; // so that charts of one range ask the same question
const FRESH_MS = 10_000;
let shared = null; // many charts are of the same machine

/** Everything that has happened since; asked once for all charts that ask at the same time. */
export function happenings(since_s) {
  const since = Math.floor(since_s / ROUND_S) * ROUND_S;
  if (shared?.since !== since || Date.now() - shared.asked_ms > FRESH_MS) {
    const answers = Promise.all([
      json(`/api/v1/events?kind=${DRIVER}&since=${since}&limit=${AT_MOST}`),
      json(`/api/v1/alerts?since=${since}&limit=${AT_MOST}`),
      json("/api/v1/status"),
    ]);
    shared = { since, asked_ms: Date.now(), answers };
    answers.catch(() => (shared = null));
  }
  return shared.answers;
}

/** What of it concerns one chart: drivers, regressions, usual levels, and when the last run was. */
export function concerning([events, alerts, status], { gpu, probe, modes }) {
  const drivers = gpu === null ? [] : events.events
    .filter((event) => event.kind === DRIVER && event.old && event.new)
    .sort((a, b) => a.at_s - b.at_s);
  const ours = (stream) =>
    (stream.uuid ?? stream.gpu) === gpu && stream.probe === probe && modes.includes(stream.mode);
  const streams = status.streams.filter((stream) => stream.uuid === gpu && ours(stream));
  const open = streams.flatMap(({ mode, open: alarms }) => alarms.map((alarm) => ({
    mode,
    since_s: alarm.since_s,
    until_s: Infinity,
    slowdown: Math.max(alarm.effect.ratio, 1 / alarm.effect.ratio), // of figures, not of time
    at_s: alarm.at_s,
    why: alarm.kind === "driver" ? `driver ${alarm.old_driver} → ${alarm.new_driver}` : alarm.kind,
  })));
  const past = alerts.alerts.filter((alert) => alert.ends_s).flatMap((alert) =>
    (alert.evidence ?? []).filter(({ stream }) => stream && ours(stream)).map((evidence) => ({
      mode: evidence.stream.mode,
      since_s: evidence.since_s,
      until_s: alert.ends_s,
      slowdown: evidence.slowdown,
      at_s: alert.starts_s,
      why: evidence.kind,
    })));
  const number = status.gpus[gpu]?.number ?? null;
  const last = status.probes.find((run) => run.probe === probe && run.gpu === number);
  return {
    drivers,
    regressions: [...past, ...open],
    usual: usual(streams),
    last_s: last?.last_success_s ?? null,
  };
}

/** The usual level of each mode, of the stream that was looked at last: mode -> figure. */
function usual(streams) {
  const newest = (a, b) => a.version - b.version || (a.last_judged_s ?? 0) - (b.last_judged_s ?? 0);
  const levels = streams.filter((stream) => stream.usual !== null).sort(newest);
  return new Map(levels.map((stream) => [stream.mode, stream.usual]));
}

/** Shade the time in which a shown mode was slower, under the lines; what overlaps only once. */
export function shade(u, regressions, shown) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  for (const { mode, since_s, until_s } of regressions) {
    if (!shown.has(mode)) continue;
    const left = u.valToPos(Math.max(since_s, u.scales.x.min), "x", true);
    const right = u.valToPos(Math.min(until_s, u.scales.x.max), "x", true);
    if (right > left) ctx.rect(left, bbox.top, right - left, bbox.height);
  }
  ctx.fillStyle = faint("--bad");
  ctx.fill();
  ctx.restore();
}

/** Draw the usual level of each shown mode, from gpud's first run on. */
export function levels(u, usual, modes, shown) {
  const { bbox } = u;
  const left = u.valToPos(Math.max(first(), u.scales.x.min), "x", true);
  modes.forEach((mode, number) => {
    if (!usual.has(mode) || !shown.has(mode)) return;
    const y = u.valToPos(usual.get(mode), "y", true);
    const right = bbox.left + bbox.width;
    if (y < bbox.top || y > bbox.top + bbox.height || left >= right) return;
    stroke(u, `--series-${number + 1}`, [3, 5], [[left, y], [right, y]]);
  });
}

/** Draw a line where another driver came, with its name where there is room; the newest first. */
export function changes(u, drivers) {
  const { bbox } = u;
  const y = bbox.top - 16 * devicePixelRatio;
  const inside = drivers.filter(({ at_s }) => at_s >= u.scales.x.min && at_s <= u.scales.x.max);
  let free = bbox.left + bbox.width; // what is right of it is written upon
  for (const driver of inside.toReversed()) {
    const x = u.valToPos(driver.at_s, "x", true);
    stroke(u, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    const text = `driver ${driver.old} → ${driver.new}`;
    const width = measured(u, text) + 8 * devicePixelRatio;
    const [begin, align] = x + width <= free ? [x, "left"] : [Math.min(x, free), "right"];
    if (align === "right" && (begin - width < 0 || begin < x)) continue; // the page lists it too
    const gap = (align === "left" ? 4 : -4) * devicePixelRatio;
    const [from] = write(u, text, begin + gap, y, { align });
    free = from - 8 * devicePixelRatio;
  }
}
