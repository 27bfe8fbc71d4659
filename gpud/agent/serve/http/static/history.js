// A chart over time: one metric in its own unit, or all of a table in percent of what is usual.

import { colour, figureAxis, inFrame, notes, pointed, timeAxis } from "./frame.js";
import { changes, concerning, drawLevel, drivers, happenings, isSlower, label, shade } from "./marks.js";
import { aligned, bounds, level, percent, read, within } from "./series.js";
import { between, compared, figure, length, MINUTE, moment } from "./time.js";
import { span, view } from "./view.js";

const WHOLE = 100;
const APART = 5; // percent; a line that far from the others has its name beside it
const LABELLED = 0.85; // from that part of a line on it stands

/** The metrics of a table's rows; each cell of the past says which. */
export function metricsOf(table) {
  return [...(table?.querySelectorAll("td.past") ?? [])].map((cell) => ({ ...cell.dataset }));
}

/** The names of metrics, to compare them by. */
export function names(metrics) {
  return metrics.map(({ gpu, probe, mode }) => `${gpu} ${probe} ${mode}`).join();
}

/** @param {HTMLElement} element the figure */
export function history(element) {
  const isPercent = element.dataset.chart === "usual";
  const plot = element.querySelector(".plot");
  const caption = element.querySelector("figcaption").textContent.trim();
  const [below, when, modes, spoken] = notes("when", "modes", "spoken hidden");
  plot.after(below);
  let metrics = null;
  let shape = { xs: [], columns: [], rows: [], step: 1 };
  let marks = { drivers: [], each: [] };
  let focus = null;
  const wanted = () =>
    isPercent ? metricsOf(document.getElementById(element.dataset.rows)) : [{ ...element.dataset }];

  async function ask() {
    const asked = wanted();
    const [answers, happened] = await Promise.all([read(asked), happenings()]);
    return () => {
      const renewed = asked.length !== metrics?.length;
      const step = Math.max(...answers.map((answer) => answer.step));
      metrics = asked;
      shape = { ...aligned(answers, Date.now() / 1000), step };
      marks = {
        drivers: drivers(happened, metrics[0]?.gpu),
        each: metrics.map((metric) => concerning(happened, metric)),
      };
      return { data: data(), step, renewed };
    };
  }

  const levelOf = (number) => level(marks.each[number].usual, shape.columns[number][0]);

  /** The columns as they are drawn: percent, or median and band in the metric's unit. */
  function data() {
    if (!isPercent) return [shape.xs, ...shape.columns[0]];
    return [shape.xs, ...metrics.map(({ unit }, number) => {
      const usual = levelOf(number);
      return shape.columns[number][0].map((value) =>
        value === undefined ? undefined : within(percent(value, usual, unit), WHOLE));
    })];
  }

  function look() {
    const lines = metrics.map(({ words: label }, number) => ({
      label,
      stroke: () => colour(isPercent && number !== focus ? "--line" : "--accent"),
      width: isPercent ? 1.25 : 1.75,
    }));
    return {
      series: lines,
      isBand: !isPercent,
      axes: [timeAxis(), figureAxis(isPercent ? "percent" : metrics[0].unit)],
      range: () => around(),
      hooks: { draw: marksOf },
    };
  }

  function marksOf(u) {
    const middle = isPercent ? WHOLE : levelOf(0);
    if (middle !== null) drawLevel(u, middle);
    const labels = [];
    marks.each.forEach(({ slower }, number) => {
      if (middle !== null) shade(u, number + 1, middle, slower);
      const end = u.data[number + 1].slice(Math.floor(u.data[0].length * LABELLED)).filter((value) => value != null);
      if (!isPercent || end.length === 0) return;
      const [lowest, between] = [Math.min(...end), level(null, end)];
      const fires = isSlower(slower, u.scales.x.max);
      if (!fires && Math.abs(between - WHOLE) < APART) return;
      const size = fires ? slower.at(-1).slowdown : between / WHOLE;
      labels.push({ text: `${metrics[number].words} ${compared(size)}`, value: lowest, fires });
    });
    label(u, labels);
    changes(u, marks.drivers);
  }

  /** Let the axis hold what is in sight, and the usual level. */
  function around() {
    const [from, to] = span();
    const xs = shape.xs;
    const seen = data().slice(1, 1 + metrics.length).map((column) =>
      column.filter((_, index) => xs[index] >= from && xs[index] <= to));
    return bounds(seen, isPercent ? WHOLE : levelOf(0));
  }

  /** Write what is at the cursor, or else the newest whole step that lies in what is looked at. */
  function describe(u, aloud = false) {
    const at = pointed(u);
    const now_s = Date.now() / 1000;
    const [from, to] = span(now_s);
    const inStep = ({ series, index }) =>
      series.at_s[index] >= from && Math.min(series.at_s[index] + shape.step, now_s) <= to;
    const whole = (_, place) => shape.rows.some((row) => row[place] && inStep(row[place]));
    const index = at ?? shape.xs.findLastIndex(whole);
    const points = shape.rows.map((row) => near(row, index));
    const point = points.find((each) => each);
    const isIdle = isPercent && at === null;
    const texts = metrics.map(({ words }, number) => (isPercent ? `${words} ` : "") + value(number, points[number]));
    if (!point) when.textContent = "no figures in this time";
    else if (isIdle) when.textContent = "point at the chart, or at a row above to see its line";
    else {
      const latest = at !== null ? "" : view.zoom === null ? "newest: " : "last in this window: ";
      when.textContent = latest + happening(point.series.at_s[point.index]).join(" · ");
    }
    modes.textContent = isIdle ? "" : texts.join(" · ");
    if (aloud) spoken.textContent = [caption, when.textContent, ...texts].join("; ");
  }

  /** The point at a place, or of a metric that is measured seldom the last one before it. */
  function near(row, index) {
    if (!isPercent || index < 0) return row[index] ?? null;
    for (let place = index; place >= 0 && row[place] !== null; place -= 1) if (row[place]) return row[place];
    return null;
  }

  /** When a step began, and what was so then. */
  function happening(at_s) {
    const driver = marks.drivers.findLast((each) => each.at_s <= at_s);
    const slower = marks.each.flatMap((each, number) => each.slower
      .filter(({ since_s, until_s }) => since_s <= at_s && at_s < until_s)
      .map(({ slowdown, why }) => `${metrics[number].words} ${compared(slowdown)} (${why})`));
    const wide = shape.step > MINUTE ? ` (${length(shape.step)})` : "";
    return [`${moment(at_s)}${wide}`, ...(driver ? [`driver ${driver.new}`] : []), ...slower];
  }

  function value(number, point) {
    const { unit } = metrics[number];
    if (isPercent) return figure(percent(point?.series.median[point.index], levelOf(number), unit), "percent");
    const { usual } = marks.each[number];
    const level = usual === null ? [] : [`usual ${figure(usual, unit)}`];
    if (!point) return ["no figure", ...level].join("; ");
    const [median, p10, p90, n, marked] = ["median", "p10", "p90", "n", "marked"]
      .map((name) => point.series[name][point.index] ?? null);
    const runs = [`${n} ${n === 1 ? "run" : "runs"}`, ...(marked > 0 ? [`${marked} not compared`] : [])];
    if (median === null) return `no figure (${runs.join(", ")})`;
    const hasBand = p10 !== null && p90 !== null && n > 1;
    const band = hasBand ? [`p10 to p90 ${between(p10, p90, unit)}`] : [];
    return `${figure(median, unit)} (${[...band, ...runs, ...level].join(", ")})`;
  }

  const made = inFrame(plot, caption, { ask, look, describe });
  return {
    ...made,
    isStale: () => metrics !== null && names(wanted()) !== names(metrics),
    /** Show one line before the others, or with null none. */
    highlight(number) {
      focus = number;
      made.chart()?.redraw(false, false);
    },
    /** The figures as rows of a table, the first of which names the columns. */
    table: () => [
      ["time", "probe", "mode", "gpu", "unit", "median", "p10", "p90", "runs"],
      ...(metrics ?? []).flatMap(({ probe, mode, gpu, unit }, number) =>
        shape.rows[number].filter((row) => row).map(({ series, index }) => [
          new Date(series.at_s[index] * 1000).toISOString(), probe, mode, gpu, unit,
          series.median[index], series.p10[index], series.p90[index], series.n[index],
        ])),
    ],
  };
}
