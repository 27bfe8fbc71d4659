// A field of a GPU's telemetry over time, as a low chart in line with those of speed: the mean, the
// ends as a band, and shaded the time in which something held the clocks down.

import { colour, faint, figureAxis, handle, make, measured, stroke, timeAxis, write } from "./frame.js";
import { CURSOR, LEAST_MS, take } from "./history.js";
import { keys } from "./legend.js";
import { drivers, happenings } from "./marks.js";
import { json } from "./net.js";
import { aligned, FRESH_MS, HOURS_S, lonely, POINTS } from "./series.js";
import { between, figure, moment } from "./time.js";
import { looked, span, view } from "./view.js";

const CLOCK = "clock_sm_hertz"; // whose chart names what held it down
/** By the end of a field's name: its unit here, and the step that figures are rounded to. */
const UNITS = {
  celsius: ["celsius", 1], watts: ["watts", 1], hertz: ["hertz", 1e6], ratio: ["ratio", 0.01], bytes: ["gibibytes", 0.1],
};
const GIB = 2 ** 30;
const shared = new Map(); // the fields of a GPU come in one answer

/** @param {HTMLElement} element the figure */
export function telemetry(element) {
  const { gpu, field } = element.dataset;
  const calm = new Set(element.dataset.calm.split(" "));
  const [unit, digit] = UNITS[field.split("_").at(-1)];
  const scale = unit === "gibibytes" ? GIB : 1; // so that the marks of its axis are round
  const plot = element.querySelector(".plot");
  const name = element.querySelector("figcaption").textContent.trim();
  const [below, value, spoken] = [["div", "legend"], ["p", "value"], ["p", "spoken hidden"]].map(
    ([tag, className]) => Object.assign(document.createElement(tag), { className }));
  spoken.setAttribute("aria-live", "polite"); // filled by the keyboard only
  below.append(value, spoken);
  plot.before(below);
  const isLast = () => element.nextElementSibling?.dataset.chart !== "telemetry";
  let u = null;
  let shape = { xs: [], columns: [[[], [], []]], rows: [[]], step: 1, slowed: [] };
  let changed = [];
  const moves = handle(plot, () => u, describe);
  keys(plot, name, () => u, () => describe(true));

  async function load(signal, drawing) {
    const until = span()[1];
    const [answer, happened] = await Promise.all([ask(gpu), happenings(), drawing]);
    signal.throwIfAborted();
    const series = answer.gpus.find((each) => each.gpu === gpu);
    const figures = series?.figures[field];
    const part = (name) => figures[name].map((value) => (value === null ? null : value / scale));
    const [median, p90, p10] = figures ? ["mean", "maximum", "minimum"].map(part) : [];
    const track = figures ? [{ at_s: series.at_s, median, p90, p10 }] : [];
    const now_s = Date.now() / 1000;
    const step = answer.step_s;
    shape = { ...aligned([{ series: track, step }], now_s), step, slowed: slowed(series, step, calm) };
    changed = drivers(happened, gpu);
    const data = [shape.xs, ...shape.columns[0]];
    if (u === null) u = make(plot, { ...options(), data });
    else u.setData(data, false);
    moves.fit();
    describe();
    return until > now_s - step ? Math.max(LEAST_MS, step * 250) : Infinity;
  }

  function options() {
    const points = { size: 4, filter: (u, index, dense) => (dense ? null : lonely(u.data[index])) };
    const edge = { stroke: "transparent", points: { show: false } };
    const bare = { size: 4, values: () => [] };
    return {
      top: 8,
      series: [{}, { label: name, points, stroke: () => colour("--accent"), width: 1.5 }, { ...edge }, { ...edge }],
      bands: [{ series: [2, 3], fill: () => faint("--accent") }],
      axes: [{ ...timeAxis(), ...(isLast() ? {} : bare) }, { ...figureAxis(unit), space: 22 }],
      scales: {
        x: { auto: false, range: (_, min, max) => [min, max] },
        y: { range: (_, min, max) => around(unit, min, max) },
      },
      cursor: CURSOR,
      hooks: {
        drawClear: [() => u && shade(u, shape.slowed)],
        draw: [() => u && marks()],
        setCursor: [() => u && describe()],
        setSelect: [take],
      },
    };
  }

  function marks() {
    const { bbox } = u;
    for (const { at_s } of changed) {
      if (at_s < u.scales.x.min || at_s > u.scales.x.max) continue;
      const x = u.valToPos(at_s, "x", true);
      stroke(u, "--text", [5, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    }
    if (field === CLOCK) label(u, shape.slowed);
  }

  /** Say what is at the cursor, or else the newest step that is looked at. */
  function describe(aloud = false) {
    const at = u?.cursor.idx ?? null;
    const [from, to] = span();
    const [row] = shape.rows;
    const inSight = (point) => point && point.series.at_s[point.index] >= from && point.series.at_s[point.index] <= to;
    const point = at === null ? row.findLast(inSight) : (row[at] ?? null);
    const when = at === null ? (view.zoom === null ? "" : "last in this window: ") : point ? "" : "not read then";
    value.textContent = point ? `${when}${text(point)}` : when;
    if (aloud && point) spoken.textContent = `${moment(point.series.at_s[point.index])} ${name} ${text(point)}`;
  }

  function text({ series: { at_s, median, p90, p10 }, index }) {
    if (median[index] === null) return "not read then";
    const [mean, high, low] = [median, p90, p10].map((column) => Math.round(column[index] / digit) * digit);
    const ends = high > low ? ` (${between(low, high, unit)})` : "";
    const held = field === CLOCK ? shape.slowed.find((each) => each.at_s === at_s[index]) : null;
    return `${figure(mean, unit)}${ends}${held ? ` · held down by ${held.words}` : ""}`;
  }

  return { ...moves, load };
}

/** Ask for all fields of a GPU in what is looked at. Errors: those of json. */
function ask(gpu) {
  const before = shared.get(gpu);
  if (before?.looked === looked() && Date.now() - before.asked_ms < FRESH_MS) return before.answer;
  const answer = question(gpu);
  const entry = { looked: looked(), asked_ms: Date.now(), answer };
  shared.set(gpu, entry);
  answer.catch(() => shared.get(gpu) === entry && shared.delete(gpu));
  return answer;
}

async function question(gpu) {
  const read = (since, until) =>
    json(`/api/v1/telemetry?${new URLSearchParams({ gpu, since, until, points: POINTS })}`);
  const [since, until] = span();
  const answer = await read(since, until);
  if (answer.source !== "minutes" || answer.gpus.length > 0) return answer;
  const middle = (since + until) / 2; // the minutes of that time are deleted
  return read(middle - HOURS_S / 2, middle + HOURS_S / 2);
}

/** The steps in which a reason held the clocks down that slows work: {at_s, until_s, reason, share, words}. */
function slowed(series, step, calm) {
  const reasons = Object.entries(series?.throttle ?? {}).filter(([reason]) => !calm.has(reason));
  return (series?.at_s ?? []).flatMap((at_s, index) => {
    const held = reasons.map(([reason, shares]) => [reason.replaceAll("_", " "), shares[index]])
      .filter(([, share]) => share > 0)
      .sort(([, a], [, b]) => b - a);
    const words = held.map(([reason, share]) => `${reason} ${Math.round(100 * share)} %`).join(", ");
    return held.length ? [{ at_s, until_s: at_s + step, reason: held[0][0], share: held[0][1], words }] : [];
  });
}

/** From where to where an axis goes: a share from 0 to 1, heat about what it was, others from 0. */
function around(unit, min, max) {
  if (min === null) return [0, 1];
  if (unit === "ratio") return [0, 1];
  return unit === "celsius" ? [min - 3, max + 3] : [0, 1.1 * max || 1];
}

/** Shade steps under the lines, the darker the longer they were held down. */
function shade(u, steps) {
  const { ctx, bbox } = u;
  const x = (at_s) => Math.round(u.valToPos(Math.min(Math.max(at_s, u.scales.x.min), u.scales.x.max), "x", true));
  ctx.save();
  ctx.fillStyle = colour("--warn");
  for (const { at_s, until_s, share } of steps) {
    ctx.globalAlpha = 0.08 + 0.2 * share;
    ctx.fillRect(x(at_s), bbox.top, x(until_s) - x(at_s), bbox.height);
  }
  ctx.restore();
}

/** Name the reason where shaded time begins and there is room. */
function label(u, steps) {
  const { bbox } = u;
  let [ended, free] = [-Infinity, bbox.left];
  for (const { at_s, until_s, reason } of steps) {
    const begins = at_s > ended;
    ended = until_s;
    const x = u.valToPos(at_s, "x", true) + 3 * devicePixelRatio;
    if (!begins || x < free || x + measured(u, reason) > bbox.left + bbox.width) continue;
    [, free] = write(u, reason, x, bbox.top + 2 * devicePixelRatio, { name: "--warn" });
  }
}
