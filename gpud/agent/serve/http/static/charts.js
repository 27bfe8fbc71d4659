// The charts of the page: each is filled once it is near what can be seen, and kept up to date as
// long as it is.

import { themed } from "./frame.js";
import { history } from "./history.js";
import { past } from "./past.js";
import { telemetry } from "./telemetry.js";
import { listen } from "./view.js";

const NEAR = "200px";
const AGAIN_MS = 10_000; // after a failure
const LOOK_MS = 1000;
const KINDS = { history, past, telemetry, usual: history };
const FOLDER = "./vendor/uPlot-1.6.32/";
/** @type {Map<Element, Chart>} */
const charts = new Map();
let loading = null;

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.made = KINDS[figure.dataset.chart](figure);
    this.near = false;
    this.due_ms = 0;
    this.loading = null;
  }

  /** Ask for what is new, unless that is being done. */
  async update() {
    if (!this.near || document.hidden || this.loading || Date.now() < this.due_ms) return;
    const stop = new AbortController();
    this.loading = stop;
    this.figure.setAttribute("aria-busy", "true");
    try {
      const drawing = library(); // it comes while the figures are read
      const pause_ms = await this.made.load(stop.signal, drawing);
      if (!stop.signal.aborted) this.done(pause_ms, "");
    } catch (error) {
      if (!stop.signal.aborted) this.done(AGAIN_MS, error.message);
    } finally {
      if (this.loading === stop) this.loading = null;
    }
  }

  /** Something else is looked at: the answer that is under way is for nobody. */
  renew() {
    this.loading?.abort();
    this.loading = null;
    this.due_ms = 0;
    this.figure.removeAttribute("aria-busy"); // out of sight nothing is asked instead
    this.figure.removeAttribute("data-drawn");
    this.made.fit?.();
    this.update();
  }

  done(pause_ms, trouble) {
    this.due_ms = Date.now() + pause_ms;
    this.figure.removeAttribute("aria-busy");
    this.figure.toggleAttribute("data-drawn", trouble === "");
    let note = this.figure.querySelector(".trouble");
    if (note === null && trouble) {
      note = Object.assign(document.createElement("p"), { className: "trouble" });
      this.figure.append(note);
    }
    if (note === null) return;
    note.hidden = !trouble;
    note.textContent = trouble ? `no newer figures: ${trouble}` : "";
  }
}

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = charts.get(target);
    if (!chart) continue;
    chart.near = isIntersecting;
    chart.update();
  }
}, { rootMargin: NEAR });

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = charts.get(target.closest("[data-chart]"));
    const u = chart?.made.chart();
    if (u && Math.abs(u.width - target.clientWidth) >= 1) chart.made.resize();
  }
});

/** Take in the charts that the page has by now, and let go of those that it has no more. */
export function adopt() {
  for (const [figure, chart] of charts) {
    if (figure.isConnected && figure.matches("[data-chart]")) continue;
    chart.loading?.abort();
    chart.made.chart()?.destroy();
    sight.unobserve(figure);
    if (chart.made.place) sizes.unobserve(chart.made.place);
    charts.delete(figure);
    for (const below of figure.querySelectorAll(".legend, .trouble")) below.remove();
  }
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (charts.has(figure)) {
      if (charts.get(figure).made.isStale()) charts.get(figure).renew();
      continue;
    }
    const chart = new Chart(figure);
    charts.set(figure, chart);
    if (chart.made.place) sizes.observe(chart.made.place);
    sight.observe(figure);
  }
}

/** Begin. */
export function start() {
  adopt();
  setInterval(() => charts.forEach((chart) => chart.update()), LOOK_MS);
  for (const type of ["pointerover", "pointerout", "focusin", "focusout"]) addEventListener(type, point);
  themed(() => charts.forEach((chart) => chart.made.redraw()));
  listen((what) => charts.forEach((chart) => (what === "time" ? chart.made.redraw() : chart.renew())));
}

/** The charts as uPlot has them, by the id of their figure: for those who look from outside. */
export function drawn() {
  return Object.fromEntries([...charts].map(([figure, chart]) => [figure.id, chart.made.chart()]));
}

/** The charts of all metrics that the page shows: their names, uPlot's and their figures. */
export function overviews() {
  return [...charts].filter(([figure]) => figure.dataset.chart === "usual")
    .map(([{ id }, { made }]) => ({ id, u: made.chart(), table: made.table() }));
}

/** Let a row that is pointed at show its line in the chart below. */
function point({ target, type }) {
  const row = target.closest?.("[data-chart=past] tbody tr");
  if (!row) return;
  const table = row.closest("table");
  for (const [figure, { made }] of charts) {
    if (figure.dataset.rows === table.id) {
      made.highlight(type === "pointerover" || type === "focusin" ? row.sectionRowIndex : null);
    }
  }
}

/** Fetch uPlot with the first chart. Errors: Error naming the file. */
function library() {
  loading ??= Promise.all([
    element("link", { rel: "stylesheet", href: address("uPlot.min.css") }),
    element("script", { src: address("uPlot.iife.min.js") }),
  ]);
  loading.catch(() => (loading = null)); // to be tried again
  return loading;
}

function element(name, properties) {
  return new Promise((loaded, failed) => {
    const made = Object.assign(document.createElement(name), properties);
    made.addEventListener("load", loaded);
    made.addEventListener("error", () => {
      made.remove();
      failed(new Error(`cannot load ${properties.href ?? properties.src}`));
    });
    document.head.append(made);
  });
}

/** With the version that this module was asked for with. */
function address(name) {
  return new URL(FOLDER + name + new URL(import.meta.url).search, import.meta.url).href;
}
