// From which size of matrix on the GPU is quicker than the CPU.

import { json } from "./api.js";
import { few, figureAxis, line, make, measured, size, stroke, write } from "./frame.js";
import { figure as words } from "./units.js";

const EVERY_MS = 60_000;

/** @param {HTMLElement} figure */
export function crossover(figure) {
  const { gpu } = figure.dataset;
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption")?.textContent.trim() ?? "crossover";
  let u = null;
  let side = null;

  async function load(signal) {
    const document = await json("/api/v1/probes", signal);
    const known = document.probes.find((one) => one.name === "crossover");
    const run = known?.last.find((one) => one.uuid === gpu);
    const curve = run?.curve ?? [];
    const elements = run?.samples.find((one) => one.unit === "elements")?.median;
    side = elements ? Math.round(Math.sqrt(elements)) : null;
    u?.destroy();
    u = null;
    if (curve.length < 2) {
      plot.removeAttribute("role");
      plot.textContent = "no curve yet";
    } else {
      plot.setAttribute("role", "img");
      const wins = side ? `the GPU wins from ${side} x ${side} on` : "the GPU does not win";
      plot.setAttribute("aria-label", `${caption}: ${wins}`);
      u = make(plot, options(curve));
    }
    return EVERY_MS;
  }

  function options(curve) {
    const columns = ["n", "cpu_s", "gpu_s"].map((name) => curve.map((one) => one[name]));
    const [sides, ...times] = columns;
    const all = times.flat().filter((one) => one > 0);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return {
      data: columns,
      series: [{}, line("CPU", 1, { points: { show: true, size: 5 } }),
        line("GPU", 0, { points: { show: true, size: 5 } })],
      scales: {
        x: { time: false, distr: 3, log: 2, range: () => [sides[0] / 1.1, sides.at(-1) * 1.1] },
        y: { distr: 3, range: () => [least / 1.6, most * 1.6] },
      },
      axes: [
        figureAxis("", { size: 30, space: 40, splits: () => thinned(sides),
          values: (_, splits) => splits.map(String) }),
        figureAxis("seconds", { filter: few }),
      ],
      cursor: { show: false },
      hooks: { draw: [(chart) => marked(chart, curve)] },
    };
  }

  function marked(chart, curve) {
    const { bbox } = chart;
    const taken = []; // [left, right, top] of what is written
    const row = 15 * devicePixelRatio;
    const put = (text, x, align, tops) => {
      const width = measured(chart, text) + row;
      const left = align === "left" ? x : x - width;
      const free = (top) => taken.every(([begin, end, other]) =>
        left > end || left + width < begin || Math.abs(top - other) >= row);
      const top = tops.find(free) ?? tops[0];
      taken.push([left, left + width, top]);
      write(chart, text, x, top, { align });
    };
    for (const [name, key] of [["CPU", "cpu_s"], ["GPU", "gpu_s"]]) {
      const time_s = curve.at(-1)[key];
      const y = chart.valToPos(time_s, "y", true);
      put(`${name} ${words(time_s, "seconds")}`, bbox.left + bbox.width - 4, "right",
        [y - row, y + row / 2, y - 2 * row]);
    }
    if (side === null) return;
    const x = chart.valToPos(side, "x", true);
    stroke(chart, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    const align = x > bbox.left + bbox.width / 2 ? "right" : "left";
    const rows = Array.from({ length: Math.floor(bbox.height / row) }, (_, place) =>
      bbox.top + 2 + place * row);
    put(`GPU wins from ${side} × ${side}`, x + (align === "left" ? 5 : -5), align, rows);
  }

  return {
    load,
    fit() {},
    redraw: () => u?.redraw(),
    resize: () => u?.setSize(size(plot)),
    chart: () => u,
  };
}

/** Sizes that are written: each is twice the one before or more. */
function thinned(sides) {
  const shown = [];
  for (const side of sides) if (side >= 2 * (shown.at(-1) ?? 0)) shown.push(side);
  return shown;
}
