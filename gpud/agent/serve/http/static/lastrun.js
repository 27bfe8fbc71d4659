// Charts of the last run: how launches are spread, and from which size the GPU beats the CPU.

import { colour, few, figureAxis, line, make, size, stroke, write } from "./frame.js";
import { json } from "./net.js";
import { figure as words } from "./time.js";

const EVERY_MS = 30_000;

/** Bars between the bounds of the buckets, and where median and p90 are. */
export function distribution(figure) {
  return drawnFrom(figure, "no distribution yet", (run) => {
    const sample = run.samples.find((each) => each.mode === figure.dataset.mode);
    const bars = sample?.buckets ? between(sample.buckets) : [];
    if (bars.length === 0) return null;
    const marks = [["median", sample.median], ["p90", sample.p90], ["p99", sample.p99]];
    const label = marks.map(([name, value]) => `${name} ${words(value, "seconds")}`).join(", ");
    return [`${label}, ${sample.n} calls`, spread(bars, marks)];
  });
}

/** The curve of each side over the size of the matrix. */
export function crossover(figure) {
  return drawnFrom(figure, "no curve yet", (run) => {
    const curve = run.curve ?? [];
    if (curve.length < 2) return null;
    const elements = run.samples.find((sample) => sample.unit === "elements")?.median;
    const side = elements ? Math.round(Math.sqrt(elements)) : null;
    const wins = side ? `the GPU wins from ${side} x ${side} on` : "the GPU does not win";
    return [wins, curves(curve, side)];
  });
}

/** A chart of the last run of a probe: `made` gives its label and options, or null. */
function drawnFrom(figure, nothing, made) {
  const { probe, gpu } = figure.dataset;
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption").textContent.trim();
  let u = null;

  async function load(signal) {
    const { probes } = await json("/api/v1/probes", signal);
    const runs = probes.find((each) => each.name === probe)?.last ?? [];
    const run = runs.find((each) => each.uuid === (gpu === "cpu" ? null : gpu));
    const [label, options] = (run && made(run)) ?? [nothing, null];
    u?.destroy();
    u = null;
    plot.replaceChildren(options ? "" : nothing);
    plot.toggleAttribute("aria-label", options !== null);
    if (options === null) plot.removeAttribute("role");
    else {
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${caption}: ${label}`);
      u = make(plot, options);
    }
    return EVERY_MS;
  }

  return { load, redraw: () => u?.redraw(), resize: () => u?.setSize(size(plot)), chart: () => u };
}

function spread(bars, marks) {
  const [least, most] = [bars[0].from, Math.max(bars.at(-1).to, ...marks.map(([, value]) => value))];
  const high = Math.max(...bars.map((bar) => bar.count));
  const counts = (_, splits) => splits.map((split) => (Number.isInteger(split) ? String(split) : ""));
  return {
    data: [[least, most], [0, high]],
    series: [{}, { stroke: "transparent", points: { show: false } }],
    scales: {
      x: { time: false, distr: 3, range: () => [least, most] },
      y: { range: () => [0, high * 1.05] },
    },
    axes: [figureAxis("seconds", { size: 30, space: 40, filter: few }), figureAxis("", { values: counts })],
    cursor: { show: false },
    hooks: { drawAxes: [(u) => fill(u, bars)], draw: [(u) => quantiles(u, marks)] },
  };
}

/** Bars with something in them and the empty ones between; the outermost are as wide as others. */
function between({ upper_bounds_s: bounds, counts }) {
  const first = counts.findIndex((count) => count > 0);
  const last = counts.findLastIndex((count) => count > 0);
  const bars = [];
  for (let index = first; index >= 0 && index <= last; index += 1) {
    const to = bounds[index] ?? bounds.at(-1) * 1.25;
    bars.push({ from: bounds[index - 1] ?? to / 1.25, to, count: counts[index] });
  }
  return bars;
}

function fill(u, bars) {
  u.ctx.fillStyle = colour("--series-1");
  const floor = u.valToPos(0, "y", true);
  for (const { from, to, count } of bars) {
    const [left, right] = [u.valToPos(from, "x", true), u.valToPos(to, "x", true)];
    const least = count > 0 ? 1.5 * devicePixelRatio : 0; // one call in thousands is to be seen
    const height = Math.max(least, floor - u.valToPos(count, "y", true));
    u.ctx.fillRect(left + 0.5, floor - height, Math.max(1, right - left - 1), height);
  }
}

function quantiles(u, marks) {
  const { bbox } = u;
  marks.forEach(([name, value], row) => {
    const x = u.valToPos(value, "x", true);
    stroke(u, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
    const align = x > bbox.left + bbox.width / 2 ? "right" : "left";
    const y = bbox.top + (2 + 15 * row) * devicePixelRatio;
    write(u, `${name} ${words(value, "seconds")}`, x + (align === "left" ? 5 : -5), y, { align });
  });
}

function curves(curve, side) {
  const columns = ["n", "cpu_s", "gpu_s"].map((name) => curve.map((point) => point[name]));
  const [sides, ...times] = columns;
  const all = times.flat().filter((time_s) => time_s > 0);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const points = { points: { show: true, size: 5 } };
  return {
    data: columns,
    series: [{}, line("CPU", 1, points), line("GPU", 0, points)],
    scales: {
      x: { time: false, distr: 3, log: 2, range: () => [sides[0] / 1.1, sides.at(-1) * 1.1] },
      y: { distr: 3, range: () => [least / 1.6, most * 1.6] },
    },
    axes: [
      figureAxis("", { size: 30, space: 40, splits: () => doubled(sides),
        values: (_, splits) => splits.map(String) }),
      figureAxis("seconds", { filter: few }),
    ],
    cursor: { show: false },
    hooks: { draw: [(u) => ends(u, curve, side)] },
  };
}

/** Name each curve at its end, the slower one above it, and mark where they cross. */
function ends(u, curve, side) {
  const { bbox } = u;
  const last = curve.at(-1);
  const row = 15 * devicePixelRatio;
  for (const [name, time_s, other_s] of [["CPU", last.cpu_s, last.gpu_s], ["GPU", last.gpu_s, last.cpu_s]]) {
    const y = u.valToPos(time_s, "y", true) + (time_s > other_s ? -1.4 * row : row / 2);
    write(u, `${name} ${words(time_s, "seconds")}`, bbox.left + bbox.width - 4, y, { align: "right" });
  }
  if (side === null) return;
  const x = u.valToPos(side, "x", true);
  stroke(u, "--text", [6, 3], [[x, bbox.top], [x, bbox.top + bbox.height]]);
}

/** Sizes that are written: each is twice the one before or more. */
function doubled(sides) {
  const shown = [];
  for (const side of sides) if (side >= 2 * (shown.at(-1) ?? 0)) shown.push(side);
  return shown;
}
