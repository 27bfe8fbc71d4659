// A chart over time: one metric in its own unit, or all of a table in percent of what is usual.

import { colour, faint, figureAxis, handle, make, selected, timeAxis } from "./frame.js";
import { keys, legend } from "./legend.js";
import { changes, concerning, drawLevel, drivers, happenings, isSlower, label, shade } from "./marks.js";
import { aligned, bounds, level, lonely, percent, read, within } from "./series.js";
import { compared } from "./time.js";
import { span, view, zoom } from "./view.js";

export const LEAST_MS = 30_000;
const WHOLE = 100;
const APART = 5; // percent; a line that far from the others has its name beside it
const LABELLED = 0.85; // from that part of a line on it stands

/** How all charts are moved in: a window is dragged, a double click goes back, they share the cursor. */
export const CURSOR = {
  drag: { x: true, y: false, setScale: false },
  bind: { dblclick: () => () => (zoom(null), null) },
  sync: {
    key: "gpud",
    setSeries: false,
    filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
  },
};

/** Look at what was selected with the mouse. */
export function take(u) {
  const window = selected(u);
  if (window) zoom(window);
}

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
  const below = legend(plot, isPercent);
  let metrics = [];
  let requested = null;
  let u = null;
  let shape = { xs: [], columns: [], rows: [], step: 1 };
  let marks = { drivers: [], each: [] };
  let focus = null;
  const moves = handle(plot, () => u, describe);
  keys(plot, caption, () => u, () => describe(true));

  const wanted = () =>
    isPercent ? metricsOf(document.getElementById(element.dataset.rows)) : [{ ...element.dataset }];

  /** Ask, and draw it; gives how long that is good for. Errors: those of json. */
  async function load(signal, drawing) {
    const asked = wanted();
    requested = names(asked);
    const until = span()[1];
    const [answers, happened] = await Promise.all([read(asked), happenings(), drawing]);
    signal.throwIfAborted(); // that was for all charts: another range may be looked at by now
    const now_s = Date.now() / 1000;
    const step = Math.max(...answers.map((answer) => answer.step));
    const renewed = asked.length !== metrics.length;
    metrics = asked;
    shape = { ...aligned(answers, now_s), step };
    marks = {
      drivers: drivers(happened, metrics[0]?.gpu),
      each: metrics.map((metric) => concerning(happened, metric)),
    };
    draw(renewed);
    // A point more is there after a step; what is long past does not change any more.
    return until > now_s - step ? Math.max(LEAST_MS, (step * 1000) / 4) : Infinity;
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

  function draw(renewed) {
    if (u !== null && !renewed) u.setData(data(), false);
    else {
      u?.destroy();
      u = make(plot, options());
    }
    moves.fit();
    describe();
  }

  function options() {
    const points = { size: 4, filter: (u, index, dense) => (dense ? null : lonely(u.data[index])) };
    const lines = metrics.map(({ words: label }, number) => ({
      label,
      points,
      stroke: () => colour(isPercent && number !== focus ? "--line" : "--accent"),
      width: isPercent ? 1.25 : 1.75,
    }));
    const edge = { stroke: "transparent", points: { show: false } };
    return {
      data: data(),
      series: [{}, ...lines, ...(isPercent ? [] : [{ ...edge }, { ...edge }])],
      bands: isPercent ? [] : [{ series: [2, 3], fill: () => faint("--accent") }],
      axes: [timeAxis(), figureAxis(isPercent ? "percent" : metrics[0].unit)],
      scales: {
        x: { auto: false, range: (_, min, max) => [min, max] },
        y: { range: () => around() },
      },
      cursor: CURSOR,
      hooks: {
        draw: [() => u && marksOf()],
        setCursor: [() => u && describe()],
        setSelect: [take],
      },
    };
  }

  function marksOf() {
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

  const percentAt = (number, row) =>
    percent(row?.series.median[row.index], levelOf(number), metrics[number].unit);

  /** Say what is at the cursor, or else the newest step that lies in what is looked at. */
  function describe(aloud = false) {
    const at = u?.cursor.idx ?? null;
    const now_s = Date.now() / 1000;
    const [from, to] = span(now_s);
    const inStep = ({ series, index }) =>
      series.at_s[index] >= from && Math.min(series.at_s[index] + shape.step, now_s) <= to;
    const whole = (_, place) => shape.rows.some((row) => row[place] && inStep(row[place]));
    const inside = shape.xs[at] >= from && shape.xs[at] <= to ? at : -1;
    const index = at === null ? shape.xs.findLastIndex(whole) : inside;
    const rows = shape.rows.map((row) => near(row, index));
    const point = rows.find((row) => row);
    const at_s = point ? point.series.at_s[point.index] : (shape.xs[index] ?? null);
    const latest = at !== null ? "" : view.zoom === null ? "newest: " : "last in this window: ";
    const lines = metrics.map((metric, number) => ({
      ...metric,
      ...marks.each[number],
      row: rows[number],
      percent: isPercent ? percentAt(number, rows[number]) : null,
    }));
    below.describe({ at_s, latest, lines, step: shape.step, drivers: marks.drivers, to }, aloud);
  }

  /** The point at a place, or of a metric that is measured seldom the last one before it. */
  function near(row, index) {
    if (!isPercent || index < 0) return row[index] ?? null;
    for (let place = index; place >= 0 && row[place] !== null; place -= 1) if (row[place]) return row[place];
    return null;
  }

  return {
    ...moves,
    load,
    isStale: () => requested !== null && names(wanted()) !== requested,
    /** Show one line before the others, or with null none. */
    highlight(number) {
      focus = number;
      u?.redraw(false, false);
    },
    /** The figures as rows of a table, the first of which names the columns. */
    table: () => [
      ["time", "probe", "mode", "gpu", "unit", "median", "p10", "p90", "runs"],
      ...metrics.flatMap(({ probe, mode, gpu, unit }, number) =>
        shape.rows[number].filter((row) => row).map(({ series, index }) => [
          new Date(series.at_s[index] * 1000).toISOString(), probe, mode, gpu, unit,
          series.median[index], series.p10[index], series.p90[index], series.n[index],
        ])),
    ],
  };
}
