// What is drawn into a chart of history besides its lines: other drivers, regressions, baselines.

import { json } from "./api.js";
import { measured, stroke, write } from "./frame.js";
import { faint } from "./theme.js";
import { first } from "./view.js";

const DRIVER = "driver_version";
const AT_MOST = 200;
const ROUND_S = 300; // so that charts of one range ask the same question
let shared = null; // many charts tell of the same machine

/** Everything that has happened since; asked once for all charts that ask at the same time. */
export function happenings(since_s) {
  const since = Math.floor(since_s / ROUND_S) * ROUND_S;
  if (shared?.since !== since || Date.now() - shared.asked_ms > 10_000) {
    const found = Promise.all([
      json(`/api/v1/events?kind=${DRIVER}&since=${since}&limit=${AT_MOST}`),
      json(`/api/v1/alerts?since=${since}&limit=${AT_MOST}`),
      json("/api/v1/status"),
    ]);
    shared = { since, asked_ms: Date.now(), found };
    found.catch(() => (shared = null));
  }
  return shared.found;
}

/** What of it concerns one chart: drivers, regressions, baselines, and when the last run was. */
export function concerning([events, alerts, status], { gpu, probe, modes }) {
  const drivers = gpu === null ? [] : events.events
    .filter((one) => one.kind === DRIVER && one.old && one.new)
    .map((one) => ({ at_s: one.at_s, old: one.old, new: one.new }))
    .sort((a, b) => a.at_s - b.at_s);
  const ours = (one) =>
    (one.uuid ?? one.gpu) === gpu && one.probe === probe && modes.includes(one.mode);
  const streams = status.streams.filter((one) => one.uuid === gpu && ours(one));
  const regressions = streams.flatMap((one) =>
    one.open.map((alarm) => ({
      mode: one.mode,
      since_s: alarm.since_s,
      until_s: Infinity,
      slowdown: Math.max(alarm.effect.ratio, 1 / alarm.effect.ratio), // of figures, not of time
      at_s: alarm.at_s,
      why: alarm.kind === "driver" ? `driver ${alarm.old_driver} → ${alarm.new_driver}` : alarm.kind,
    })),
  );
  const past = alerts.alerts
    .filter((alert) => alert.ends_s)
    .flatMap((alert) =>
      (alert.evidence ?? []).filter((one) => one.stream && ours(one.stream)).map((one) => ({
        mode: one.stream.mode,
        since_s: one.since_s,
        until_s: alert.ends_s,
        slowdown: one.slowdown,
        at_s: alert.starts_s,
        why: one.kind,
      })),
    );
  const number = status.gpus[gpu]?.number ?? null;
  const last = status.probes.find((one) => one.probe === probe && one.gpu === number);
  return {
    drivers,
    regressions: [...past, ...regressions],
    baselines: baselines(streams),
    last_s: last?.last_success_s ?? null,
  };
}

/** The usual level of each mode, of the stream that was looked at last: [mode, figure]. */
function baselines(streams) {
  const found = new Map();
  const judged = (one) => [one.version, one.last_judged_s ?? 0];
  for (const one of streams) {
    const other = found.get(one.mode);
    const newer = !other || judged(one)[0] > judged(other)[0] ||
      (judged(one)[0] === judged(other)[0] && judged(one)[1] > judged(other)[1]);
    if (one.usual !== null && newer) found.set(one.mode, one);
  }
  return new Map([...found].map(([mode, one]) => [mode, one.usual]));
}

/** Shade the time in which a shown mode was slower; under the lines. */
export function shade(u, regressions, shown) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = faint("--bad");
  for (const [from, to] of merged(regressions.filter((one) => shown.has(one.mode)))) {
    const left = u.valToPos(Math.max(from, u.scales.x.min), "x", true);
    const right = u.valToPos(Math.min(to, u.scales.x.max), "x", true);
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

/** Times that overlap are shaded once. */
export function merged(regressions) {
  const found = [];
  for (const { since_s, until_s } of regressions.toSorted((a, b) => a.since_s - b.since_s)) {
    const last = found.at(-1);
    if (last && since_s <= last[1]) last[1] = Math.max(last[1], until_s);
    else found.push([since_s, until_s]);
  }
  return found;
}

/** Draw the usual level of each shown mode, from gpud's first run on. */
export function levels(u, baselines, modes, shown) {
  const left = u.valToPos(Math.max(first(), u.scales.x.min), "x", true);
  modes.forEach((mode, number) => {
    const level = baselines.get(mode);
    if (level === undefined || !shown.has(mode)) return;
    const y = u.valToPos(level, "y", true);
    if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) return;
    const right = u.bbox.left + u.bbox.width;
    if (left < right) stroke(u, `--series-${number + 1}`, [3, 5], [[left, y], [right, y]]);
  });
}

/** Draw a line where another driver came, with its name where there is room; the newest first. */
export function changes(u, drivers) {
  const { bbox } = u;
  const y = bbox.top - 16 * devicePixelRatio;
  const seen = drivers.filter((one) => one.at_s >= u.scales.x.min && one.at_s <= u.scales.x.max);
  let free = bbox.left + bbox.width; // what is right of it is written upon
  for (const one of seen.toReversed()) {
    const x = u.valToPos(one.at_s, "x", true);
    stroke(u, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    const text = `driver ${one.old} → ${one.new}`;
    const width = measured(u, text) + 8 * devicePixelRatio;
    const [begin, align] = x + width <= free ? [x, "left"] : [Math.min(x, free), "right"];
    if (align === "right" && (begin - width < 0 || begin < x)) continue; // the page lists it too
    const aside = (align === "left" ? 4 : -4) * devicePixelRatio;
    const [from] = write(u, text, begin + aside, y, { align });
    free = from - 8 * devicePixelRatio;
  }
}
