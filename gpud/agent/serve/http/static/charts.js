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
/** @type {Map<Element, Chart>} */
const charts = new Map();

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.made = KINDS[figure.dataset.chart](figure);
    this.near = false;
    this.due_ms = 0;
    this.turn = null; // what is asked for now
  }

  /** Ask for what is new, unless that is being done. */
  async update() {
    if (!this.near || document.hidden || this.turn !== null || Date.now() < this.due_ms) return;
    const turn = (this.turn = {});
    this.figure.setAttribute("aria-busy", "true");
    try {
      const take = await this.made.ask();
      if (this.turn === turn) this.end(take(), "");
    } catch (error) {
      if (this.turn === turn) this.end(AGAIN_MS, error.message);
    }
  }

  /** Something else is looked at: the answer that is under way is for nobody. */
  renew() {
    this.turn = null;
    this.due_ms = 0;
    this.figure.removeAttribute("aria-busy"); // out of sight nothing is asked instead
    this.figure.removeAttribute("data-drawn");
    this.made.fit();
    this.update();
  }

  end(pause_ms, trouble) {
    this.turn = null;
    this.due_ms = Date.now() + pause_ms;
    this.figure.removeAttribute("aria-busy");
    this.figure.toggleAttribute("data-drawn", trouble === "");
    this.figure.querySelector(".trouble")?.remove();
    if (!trouble) return;
    const note = { className: "trouble", textContent: `no newer figures: ${trouble}` };
    this.figure.append(Object.assign(document.createElement("p"), note));
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
    const { made } = charts.get(target.closest("[data-chart]")) ?? {};
    const u = made?.chart();
    if (u && Math.abs(u.width - target.clientWidth) >= 1) made.resize();
  }
});

/** Take in the charts that the page has by now, and let go of those that it has no more. */
export function adopt() {
  for (const [figure, chart] of charts) {
    if (figure.isConnected) continue;
    chart.turn = null;
    chart.made.chart()?.destroy();
    sight.unobserve(figure);
    if (chart.made.place) sizes.unobserve(chart.made.place);
    charts.delete(figure);
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
  listen(() => charts.forEach((chart) => chart.renew()));
  // For those who look closer, in the console: the figures behind the pixels.
  const drawn = () => Object.fromEntries([...charts].map(([figure, { made }]) => [figure.id, made.chart()]));
  Object.defineProperty(globalThis, "gpud", { value: Object.freeze({ drawn }) });
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
