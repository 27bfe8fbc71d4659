// The past of each metric of a table, as a small line beside its row: drivers as marks, what is
// slower in red. It is for the eye alone; the chart below has the figures.

import { metricsOf, names } from "./history.js";
import { concerning, drivers, happenings, runs } from "./marks.js";
import { aligned, bounds, level, percent, read } from "./series.js";
import { span } from "./view.js";

const [WIDTH, HEIGHT] = [200, 24];
const SVG = document.querySelector("svg").namespaceURI; // of a sign that every page has
const WHOLE = 100;
const EVERY_MS = 30_000;

/** @param {HTMLElement} table */
export function past(table) {
  let asked = null;
  async function ask() {
    const metrics = metricsOf(table);
    asked = names(metrics);
    const [answers, happened] = await Promise.all([read(metrics), happenings()]);
    return () => {
      const cells = table.querySelectorAll("td.past");
      metrics.forEach((metric, number) => {
        const { xs, columns: [[medians]] } = aligned([answers[number]], Date.now() / 1000);
        const { slower, usual } = concerning(happened, metric);
        const middle = level(usual, medians);
        const ys = medians.map((value) => percent(value, middle, metric.unit));
        cells[number]?.replaceChildren(drawn(xs, ys, slower, drivers(happened, metric.gpu)));
      });
      return EVERY_MS;
    };
  }
  return {
    ask,
    fit() {},
    redraw() {},
    chart: () => null,
    isStale: () => asked !== null && names(metricsOf(table)) !== asked,
  };
}

function drawn(xs, ys, slower, drivers) {
  const [from, to] = span();
  const inside = ys.filter((_, index) => xs[index] >= from && xs[index] <= to);
  const [low, high] = bounds([inside], WHOLE);
  const x = (at_s) => ((WIDTH * (at_s - from)) / (to - from)).toFixed(1);
  const y = (value) => (HEIGHT * (1 - (Math.min(Math.max(value, low), high) - low) / (high - low))).toFixed(1);
  const path = (since_s, until_s, edge = "") => runs(xs, ys, since_s, until_s).map((run) =>
    `M${run.map((index) => `${x(xs[index])} ${y(ys[index])}`).join("L")}${edge && edge(run)}`).join("");
  const floor = (run) => `V${y(WHOLE)}H${x(xs[run[0]])}Z`;
  const svg = element("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(element("path", { class: "usual", d: `M0 ${y(WHOLE)}H${WIDTH}` }));
  svg.append(element("path", { d: path(from, to + 1) }));
  for (const { since_s, until_s } of slower) {
    const window = [Math.max(since_s, from), Math.min(until_s, to + 1)];
    svg.append(element("path", { class: "area", d: path(...window, floor) }));
    svg.append(element("path", { class: "slow", d: path(...window) }));
  }
  for (const { at_s } of drivers) {
    if (at_s > from && at_s < to) svg.append(element("path", { class: "driver", d: `M${x(at_s)} -2V${HEIGHT + 2}` }));
  }
  return svg;
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
