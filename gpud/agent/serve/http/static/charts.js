// The charts of the page: each is filled once it is near what can be seen, and kept up to date as
// long as it is.

import { crossover } from "./crossover.js";
import { distribution } from "./distribution.js";
import { history } from "./history.js";
import { library } from "./library.js";
import { listen as themed } from "./theme.js";
import { listen as looked } from "./view.js";

const KINDS = { history, distribution, crossover };
const NEAR = "200px";
const AGAIN_MS = 10_000; // after a failure
const LOOK_MS = 1000;
/** @type {Map<Element, Chart>} */
const known = new Map();

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
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
      await library();
      const pause_ms = await this.made.load(stop.signal);
      if (!stop.signal.aborted) this.done(pause_ms, "");
    } catch (error) {
      if (!stop.signal.aborted) this.done(AGAIN_MS, error.message);
    } finally {
      if (this.loading === stop) this.loading = null;
    }
  }

  /** What is to be seen is another: what was asked is not wanted any more. */
  renew() {
    this.loading?.abort();
    this.loading = null;
    this.due_ms = 0;
    this.figure.removeAttribute("aria-busy"); // out of sight nothing is asked instead
    this.figure.removeAttribute("data-drawn");
    this.made.fit();
    this.update();
  }

  done(pause_ms, trouble) {
    this.due_ms = Date.now() + pause_ms;
    this.figure.removeAttribute("aria-busy");
    this.figure.toggleAttribute("data-drawn", trouble === "");
    let said = this.figure.querySelector(".trouble");
    if (said === null && trouble) {
      said = document.createElement("p");
      said.className = "trouble";
      this.figure.append(said);
    }
    if (said) {
      said.hidden = !trouble;
      said.textContent = trouble ? `no newer figures: ${trouble}` : "";
    }
  }
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = known.get(target);
    if (!chart) continue;
    chart.near = isIntersecting;
    chart.update();
  }
}, { rootMargin: NEAR });

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = known.get(target.closest("figure"));
    const u = chart?.made.chart();
    if (u && Math.abs(u.width - target.clientWidth) >= 1) chart.made.resize();
  }
});

/** Take in the charts that the page has by now, and let go of those that it has no more. */
export function adopt() {
  for (const [figure, chart] of known) {
    if (figure.isConnected && figure.matches("[data-chart]")) continue;
    chart.loading?.abort();
    chart.made.chart()?.destroy();
    seen.unobserve(figure);
    sized.unobserve(chart.plot);
    known.delete(figure);
  }
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    if (known.has(figure) || !figure.querySelector(".plot") || !(figure.dataset.chart in KINDS)) continue;
    const chart = new Chart(figure);
    known.set(figure, chart);
    sized.observe(chart.plot);
    seen.observe(figure);
  }
}

/** Begin. */
export function start() {
  adopt();
  setInterval(() => known.forEach((chart) => chart.update()), LOOK_MS);
  themed(() => known.forEach((chart) => chart.made.redraw()));
  looked((what) => {
    for (const chart of known.values()) {
      if (what === "time") chart.made.redraw();
      else chart.renew();
    }
  });
}

/** The charts as uPlot has them, by the id of their figure: for those who look from outside. */
export function drawn() {
  return Object.fromEntries([...known].map(([figure, chart]) => [figure.id, chart.made.chart()]));
}
