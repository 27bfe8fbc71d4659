// A field of a GPU's telemetry over time, as a low chart in line with those of speed: the mean, the
// ends as a band, and shaded the time in which something held the clocks down.

import { colour, figureAxis, inFrame, measured, notes, pointed, stroke, timeAxis, write } from "./frame.js";
import { drivers, happenings } from "./marks.js";
import { shared } from "./net.js";
import { aligned } from "./series.js";
import { between, figure, moment } from "./time.js";
import { query, span, view } from "./view.js";

const CLOCK = "clock_sm_hertz"; // whose chart names what held it down
/** By the end of a field's name: its unit here, and the step that figures are rounded to. */
const UNITS = {
  celsius: ["celsius", 1], watts: ["watts", 1], hertz: ["hertz", 1e6], ratio: ["ratio", 0.01], bytes: ["gibibytes", 0.1],
};
const GIB = 2 ** 30;
const NONE = { series: { at_s: [] }, index: 0 };

/** @param {HTMLElement} element the figure */
export function telemetry(element) {
  const { gpu, field } = element.dataset;
  const calm = new Set(element.dataset.calm.split(" "));
  const [unit, digit] = UNITS[field.split("_").at(-1)];
  const scale = unit === "gibibytes" ? GIB : 1; // so that the marks of its axis are round
  const plot = element.querySelector(".plot");
  const name = element.querySelector("figcaption").textContent.trim();
  const [beside, value, spoken] = notes("value", "spoken hidden");
  plot.before(beside);
  const isLast = () => element.nextElementSibling?.dataset.chart !== "telemetry";
  let shape = { xs: [], columns: [[[], [], []]], rows: [[]], slowed: [] };
  let changed = [];

  async function ask() {
    const [answer, happened] = await Promise.all([
      shared(`/api/v1/telemetry?${query({ gpu })}`), happenings(),
    ]);
    return () => {
      const step = answer.step_s;
      const series = answer.gpus.find((each) => each.gpu === gpu);
      const figures = series?.figures[field];
      const part = (name) => figures[name].map((value) => (value === null ? null : value / scale));
      const [median, p90, p10] = figures ? ["mean", "maximum", "minimum"].map(part) : [];
      const track = figures ? [{ at_s: series.at_s, median, p90, p10 }] : [];
      shape = { ...aligned([{ series: track, step }], Date.now() / 1000), slowed: slowed(series, step, calm) };
      changed = drivers(happened, gpu);
      return { data: [shape.xs, ...shape.columns[0]], step };
    };
  }

  function look() {
    const bare = { size: 4, values: () => [] };
    return {
      top: 8,
      series: [{ label: name, stroke: () => colour("--accent"), width: 1.5 }],
      isBand: true,
      axes: [{ ...timeAxis(), ...(isLast() ? {} : bare) }, figureAxis(unit)],
      range: (_, min, max) => around(unit, min, max),
      hooks: { drawClear: (u) => shade(u, shape.slowed), draw: marks },
    };
  }

  function marks(u) {
    const { bbox } = u;
    for (const { at_s } of changed) {
      if (at_s < u.scales.x.min || at_s > u.scales.x.max) continue;
      const x = u.valToPos(at_s, "x", true);
      stroke(u, "--text", [5, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    }
    if (field === CLOCK) label(u, shape.slowed);
  }

  /** Write what is at the cursor, or else the newest step that is looked at. */
  function describe(u, aloud = false) {
    const at = pointed(u);
    const [from, to] = span();
    const [row] = shape.rows;
    const inSight = (point) => point && point.series.at_s[point.index] >= from && point.series.at_s[point.index] <= to;
    const { series, index } = (at === null ? row.findLast(inSight) : row[at]) ?? NONE;
    const at_s = series.at_s[index] ?? null;
    const latest = at === null && view.zoom !== null ? "last in this window: " : "";
    value.textContent = at_s !== null ? `${latest}${text(series, index)}` : at === null ? "" : "not read then";
    if (aloud && at_s !== null) spoken.textContent = `${moment(at_s)} ${name} ${value.textContent}`;
  }

  function text({ at_s, median, p90, p10 }, index) {
    if (median[index] === null) return "not read then";
    const [mean, high, low] = [median, p90, p10].map((column) => Math.round(column[index] / digit) * digit);
    const ends = high > low ? ` (${between(low, high, unit)})` : "";
    const held = field === CLOCK ? shape.slowed.find((each) => each.at_s === at_s[index]) : null;
    return `${figure(mean, unit)}${ends}${held ? ` · held down by ${held.words}` : ""}`;
  }

  return inFrame(plot, name, { ask, look, describe });
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
  if (min === null || unit === "ratio") return [0, 1];
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
    free = write(u, reason, x, bbox.top + 2 * devicePixelRatio, "--warn");
  }
}
