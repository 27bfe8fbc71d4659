// How the latencies of the last run are spread: bars between the bounds of the buckets.

import { json } from "./api.js";
import { few, figureAxis, make, size, stroke, write } from "./frame.js";
import { colour } from "./theme.js";
import { figure as words } from "./units.js";

const EVERY_MS = 30_000;

/** @param {HTMLElement} figure */
export function distribution(figure) {
  const { probe, mode, gpu } = figure.dataset;
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption")?.textContent.trim() ?? probe;
  let u = null;
  let bars = [];
  let sample = null;

  async function load(signal) {
    sample = found(await json("/api/v1/probes", signal), { probe, mode, gpu });
    bars = sample?.buckets ? between(sample.buckets) : [];
    u?.destroy();
    u = null;
    if (bars.length === 0) {
      plot.textContent = "no distribution yet";
      plot.removeAttribute("role");
    } else {
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${caption}: median ${words(sample.median, "seconds")}, ` +
        `p90 ${words(sample.p90, "seconds")}, ${sample.n} calls`);
      u = make(plot, options());
    }
    return EVERY_MS;
  }

  function options() {
    const least = bars[0].from;
    const most = Math.max(bars.at(-1).to, sample.p90);
    const high = Math.max(...bars.map((one) => one.count));
    return {
      data: [[least, most], [0, high]],
      series: [{}, { stroke: "transparent", points: { show: false } }],
      scales: {
        x: { time: false, distr: 3, range: () => [least, most] },
        y: { range: () => [0, high * 1.05] },
      },
      axes: [figureAxis("seconds", { size: 30, space: 40, filter: few }), counts()],
      cursor: { show: false },
      hooks: { drawAxes: [(chart) => fill(chart, bars)], draw: [quantiles] },
    };
  }

  function quantiles(chart) {
    const { bbox } = chart;
    const middle = bbox.left + bbox.width / 2;
    const marks = [["median", sample.median], ["p90", sample.p90]];
    const places = marks.map(([, value]) => chart.valToPos(value, "x", true));
    for (const x of places) {
      stroke(chart, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    }
    for (const [row, [name, value]] of marks.entries()) {
      const x = places[row];
      const align = x > middle ? "right" : "left";
      const y = bbox.top + (2 + 15 * row) * devicePixelRatio;
      write(chart, `${name} ${words(value, "seconds")}`, x + (align === "left" ? 5 : -5), y, { align });
    }
  }

  return {
    load,
    fit() {},
    redraw: () => u?.redraw(),
    resize: () => u?.setSize(size(plot)),
    chart: () => u,
  };
}

function found(document, { probe, mode, gpu }) {
  const wanted = gpu === "cpu" ? null : gpu;
  const known = document.probes.find((one) => one.name === probe);
  const run = known?.last.find((one) => one.uuid === wanted);
  return run?.samples.find((one) => one.mode === mode) ?? null;
}

/** Bars with something in them and the empty ones between; the outermost are as wide as others. */
function between({ upper_bounds_s: bounds, counts }) {
  const first = counts.findIndex((one) => one > 0);
  const last = counts.findLastIndex((one) => one > 0);
  const found = [];
  for (let index = first; index >= 0 && index <= last; index += 1) {
    const to = bounds[index] ?? bounds.at(-1) * 1.25;
    found.push({ from: bounds[index - 1] ?? to / 1.25, to, count: counts[index] });
  }
  return found;
}

function fill(u, bars) {
  const { ctx } = u;
  ctx.save();
  ctx.fillStyle = colour("--series-1");
  const floor = u.valToPos(0, "y", true);
  for (const { from, to, count } of bars) {
    const left = u.valToPos(from, "x", true);
    const right = u.valToPos(to, "x", true);
    const least = count > 0 ? 1.5 * devicePixelRatio : 0; // one call in thousands is to be seen
    const height = Math.max(least, floor - u.valToPos(count, "y", true));
    ctx.fillRect(left + 0.5, floor - height, Math.max(1, right - left - 1), height);
  }
  ctx.restore();
}

function counts() {
  return figureAxis("calls", { values: (_, splits) => splits.map((one) =>
    Number.isInteger(one) ? String(one) : "") });
}
