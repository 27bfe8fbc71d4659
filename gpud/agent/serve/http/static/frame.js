// What all charts have in common: uPlot, its axes, its size, colours and type from the style sheet.

import { labels, tickLabels, zoneInUse } from "./time.js";
import { span } from "./view.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const values = new Map();
const sample = Object.assign(document.createElement("i"), { hidden: true });
document.body.append(sample);
const AXIS = 80; // so that charts below each other begin in line
const EMPTY = { left: 0, top: 0, width: 0, height: 0 };

/** Make a chart in `plot`, in the place of what is in it. */
export function make(plot, { data, series, scales, axes, hooks = {}, cursor = {}, bands = [], top = 18 }) {
  const options = {
    ...size(plot),
    legend: { show: false },
    tzDate: local,
    focus: { alpha: 1 },
    padding: [top, 20, 0, 0], // to the right, half of the last label
    cursor: { y: false, points: { size: 7 }, ...cursor },
    series,
    scales,
    axes,
    bands,
    hooks,
  };
  plot.replaceChildren();
  return new globalThis.uPlot(options, data, plot);
}

/** What charts.js moves a chart by. `chart()` is uPlot's, null before the first figures. */
export function handle(plot, chart, describe) {
  return {
    /** Show what is to be looked at, before it is known how that looks. */
    fit() {
      const [min, max] = span();
      chart()?.setScale("x", { min, max });
    },
    redraw: () => (chart()?.redraw(true, true), describe()),
    resize: () => chart()?.setSize(size(plot)),
    chart,
    place: plot,
    isStale: () => false,
  };
}

/** A moment as a date whose hours are those of the zone in use. */
function local(at_s) {
  const date = new Date(at_s * 1000);
  return zoneInUse.utc ? globalThis.uPlot.tzDate(date, "Etc/UTC") : date;
}

/** How large a chart is that fills its place. */
export function size(plot) {
  const width = Math.max(120, Math.floor(plot.clientWidth));
  return { width, height: Number.parseInt(getComputedStyle(plot).minBlockSize) };
}

/**
 * The axis of time. uPlot chooses the marks; it would write those in UTC an hour off in the night in
 * which the browser's clock is changed.
 */
export function timeAxis() {
  return {
    ...look(),
    space: 64,
    size: 46,
    values: (_, splits, __, ___, step) => tickLabels(splits, step),
  };
}

/** An axis of figures in base units. */
export function figureAxis(unit) {
  return {
    ...look(),
    space: 24,
    size: (u, values) => {
      if (!values) return 40;
      u.ctx.font = font(12 * devicePixelRatio);
      const widths = values.map((text) => u.ctx.measureText(text ?? "").width);
      return Math.max(AXIS, Math.ceil(Math.max(0, ...widths) / devicePixelRatio) + 16);
    },
    values: (_, splits) => labels(unit, splits),
  };
}

/** Take what was selected with the mouse as [from, to] of the x axis, and let go of it. */
export function selected(u) {
  const { left, width } = u.select;
  if (width < 4) return null;
  const window = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
  u.setSelect(EMPTY, false);
  return window;
}

/** Write into a chart, on a patch of the page so that lines behind do not matter. */
export function write(u, text, x, y, { name = "--text", align = "left" } = {}) {
  const { ctx } = u;
  ctx.save();
  ctx.font = font(11 * devicePixelRatio);
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  const width = ctx.measureText(text).width;
  const left = align === "left" ? x : x - width;
  ctx.fillStyle = colour("--back");
  ctx.globalAlpha = 0.8;
  ctx.fillRect(left - 2, y - 1, width + 4, 13 * devicePixelRatio);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colour(name);
  ctx.fillText(text, left, y);
  ctx.restore();
  return [left, left + width];
}

/** How wide `write` makes it, in pixels of the canvas. */
export function measured(u, text) {
  u.ctx.font = font(11 * devicePixelRatio);
  return u.ctx.measureText(text).width;
}

/** Draw a line across the chart, between points in pixels of the canvas. */
export function stroke(u, name, dash, points) {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(...points[0]);
  ctx.lineTo(...points[1]);
  ctx.stroke();
  ctx.restore();
}

function look() {
  return {
    stroke: () => colour("--quiet"),
    font: font(12),
    grid: { stroke: () => colour("--rule"), width: 1 },
    ticks: { stroke: () => colour("--rule"), width: 1 },
  };
}

/** The colour of a custom property of the page, as "--accent", in the scheme in use. */
export function colour(name) {
  if (!values.has(name)) {
    sample.style.color = `var(${name})`;
    values.set(name, getComputedStyle(sample).color);
  }
  return values.get(name);
}

/** The same, so thin that lines are seen through it. */
export function faint(name) {
  return colour(name).replace("rgb(", "rgba(").replace(")", ", 0.15)");
}

/** The type of what is written into a chart, in pixels of the page. */
function font(size = 12) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

/** Call `changed` when the page turns dark or light. */
export function themed(changed) {
  const again = () => {
    values.clear();
    changed();
  };
  dark.addEventListener("change", again);
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["style"] });
  matchMedia("(forced-colors: active)").addEventListener("change", again);
}
