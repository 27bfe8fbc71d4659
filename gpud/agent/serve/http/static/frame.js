// What all charts have in common: uPlot, its axes and keys, its size, colours and type from the style
// sheet. A window is dragged, a double click goes back, and all share the cursor.

import { figure, tickLabels } from "./time.js";
import { lonely } from "./series.js";
import { span, zoom } from "./view.js";

const LEAST_MS = 30_000;
const HELP = "arrow keys move the cursor, Escape shows everything again";
const AXIS = 80; // so that charts below each other begin in line
const EMPTY = { left: 0, top: 0, width: 0, height: 0 };
const EDGE = { stroke: "transparent", points: { show: false } };
const sample = Object.assign(document.createElement("i"), { hidden: true });
document.body.append(sample);

/**
 * A chart in `plot`. `ask()` gives what takes the answer up: a function that gives {data, step} and
 * with `renewed` that there are other lines; `look()` is how uPlot shows it, `describe(u, aloud)`
 * writes what is at the cursor.
 */
export function inFrame(plot, name, { ask, look, describe }) {
  let u = null;
  listenToKeys(plot, name, () => u, () => describe(u, true));

  /** Show what is to be looked at, before it is known how that looks. */
  function fit() {
    const [min, max] = span();
    u?.setScale("x", { min, max });
  }

  function take({ data, step, renewed = false }, until) {
    if (u !== null && !renewed) u.setData(data, false);
    else {
      u?.destroy();
      plot.replaceChildren();
      u = new globalThis.uPlot(options(plot, look(), describe), data, plot);
    }
    fit();
    describe(u);
    // A point more is there after a step; what is long past does not change any more.
    return until > Date.now() / 1000 - step ? Math.max(LEAST_MS, step * 250) : Infinity;
  }

  return {
    async ask() {
      const until = span()[1];
      const answer = await ask();
      return () => take(answer(), until);
    },
    fit,
    redraw: () => u?.redraw(true, true),
    resize: () => u?.setSize(size(plot)),
    chart: () => u,
    place: plot,
    isStale: () => false,
  };
}

function options(plot, { series, axes, range, cursor = {}, hooks = {}, top = 18, isBand = false }, describe) {
  const points = { size: 4, filter: (u, index, dense) => (dense ? null : lonely(u.data[index])) };
  return {
    ...size(plot),
    legend: { show: false },
    focus: { alpha: 1 },
    padding: [top, 20, 0, 0], // to the right, half of the last label
    cursor: {
      y: false,
      points: { size: 7 },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => (zoom(null), null) },
      sync: {
        key: "gpud",
        setSeries: false,
        filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
      },
      ...cursor,
    },
    series: [{}, ...series.map((line) => ({ points, ...line })), ...(isBand ? [{ ...EDGE }, { ...EDGE }] : [])],
    bands: isBand ? [{ series: [2, 3], fill: () => faint("--accent") }] : [],
    axes,
    scales: { x: { auto: false, range: (_, min, max) => [min, max] }, y: { range } },
    hooks: {
      setCursor: [(u) => describe(u)],
      setSelect: [select],
      ...Object.fromEntries(Object.entries(hooks).map(([name, hook]) => [name, [hook]])),
    },
  };
}

/** Look at what was selected with the mouse. */
function select(u) {
  const { left, width } = u.select;
  if (width < 4) return;
  const window = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
  u.setSelect(EMPTY, false);
  zoom(window);
}

/** How large a chart is that fills its place. */
function size(plot) {
  const width = Math.max(120, Math.floor(plot.clientWidth));
  return { width, height: Number.parseInt(getComputedStyle(plot).minBlockSize) };
}

/** The axis of time. uPlot chooses the marks. */
export function timeAxis() {
  return { ...axis(), space: 64, size: 46, values: (_, splits, __, ___, step) => tickLabels(splits, step) };
}

/** An axis of figures in base units. */
export function figureAxis(unit) {
  return {
    ...axis(),
    space: 22,
    size: (u, texts) => Math.max(AXIS, 16 + Math.max(0, ...(texts ?? []).map((text) => measured(u, text, 12) / devicePixelRatio))),
    values: (_, splits) => splits.map((value) => (value === null ? "" : figure(value, unit))),
  };
}

function axis() {
  return {
    stroke: () => colour("--quiet"),
    font: font(12),
    grid: { stroke: () => colour("--rule"), width: 1 },
    ticks: { stroke: () => colour("--rule"), width: 1 },
  };
}

/** Write into a chart, on a patch of the page so that lines behind do not matter; gives its end. */
export function write(u, text, left, y, name = "--text") {
  const { ctx } = u;
  const width = measured(u, text);
  ctx.save();
  ctx.font = font(11 * devicePixelRatio);
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.fillStyle = colour("--back");
  ctx.globalAlpha = 0.8;
  ctx.fillRect(left - 2, y - 1, width + 4, 13 * devicePixelRatio);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colour(name);
  ctx.fillText(text, left, y);
  ctx.restore();
  return left + width;
}

/** How wide `write` makes it, in pixels of the canvas. */
export function measured(u, text, points = 11) {
  u.ctx.font = font(points * devicePixelRatio);
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

/** The colour of a custom property of the page, as "--accent", in the scheme in use. */
export function colour(name) {
  sample.style.color = `var(${name})`;
  return getComputedStyle(sample).color;
}

/** The same, so thin that lines are seen through it. */
export function faint(name) {
  return colour(name).replace("rgb(", "rgba(").replace(")", ", 0.15)");
}

/** The type of what is written into a chart, in pixels of the page. */
function font(size) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

/** Call `changed` when the page turns dark or light. */
export function themed(changed) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  matchMedia("(forced-colors: active)").addEventListener("change", changed);
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["style"] });
}

/** Let the keyboard into `plot`; `moved()` is called after a key. */
function listenToKeys(plot, name, chart, moved) {
  plot.tabIndex = 0;
  // The keys are the chart's own, and a screen reader passes them on to nothing else.
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-roledescription", "chart");
  plot.setAttribute("aria-label", `${name}: ${HELP}`);
  plot.addEventListener("keydown", (event) => {
    const u = chart();
    if (u === null || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "ArrowLeft") move(u, (u.cursor.idx ?? u.data[0].length) - 1, -1);
    else if (event.key === "ArrowRight") move(u, (u.cursor.idx ?? -1) + 1, 1);
    else if (event.key === "Escape") zoom(null);
    else return;
    event.preventDefault();
    moved();
  });
}

/** Go to the place, or on from it to the next one in sight that has a figure. */
function move(u, place, direction) {
  const [xs, ...rows] = u.data;
  const { min, max } = u.scales.x;
  const has = (index) => xs[index] >= min && xs[index] <= max && rows.some((row) => row[index] != null);
  let index = Math.min(Math.max(place, 0), xs.length - 1);
  while (index >= 0 && index < xs.length && !has(index)) index += direction;
  if (has(index)) u.setCursor({ left: u.valToPos(xs[index], "x"), top: u.over.clientHeight / 2 }, true, true);
}

/** The place of the cursor; null for none, and where it is not in what is looked at. */
export function pointed(u) {
  const [from, to] = span();
  const at_s = u.data[0][u.cursor.idx];
  return at_s >= from && at_s <= to ? u.cursor.idx : null;
}

/** Make what stands beside a chart: one element of each class, the last one to be read aloud. */
export function notes(...classes) {
  const box = Object.assign(document.createElement("div"), { className: "legend" });
  const parts = classes.map((className) => Object.assign(document.createElement("p"), { className }));
  parts.at(-1).setAttribute("aria-live", "polite"); // filled by the keyboard only: a mouse would chatter
  box.append(...parts);
  return [box, ...parts];
}
