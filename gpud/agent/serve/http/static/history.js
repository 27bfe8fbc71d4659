// A probe over time on one GPU: medians, bands, the usual level, drivers and regressions.

import { faint, few, figureAxis, line, make, selected, size, timeAxis } from "./frame.js";
import { keys, legend } from "./legend.js";
import { changes, concerning, happenings, levels, shade } from "./marks.js";
import { json } from "./net.js";
import { aligned, lonely } from "./series.js";
import { span, view, zoom } from "./view.js";

const LEAST_MS = 30_000;
const FAR_APART = 12; // modes of so different sizes are seen on a logarithmic axis only
const HOURS_S = 50 * 3600; // so long that the answer is from hours, which are kept for years
const MOST_POINTS = 600;
const SYNC = "gpud";

/** @param {HTMLElement} figure */
export function history(figure) {
  const { probe, unit } = figure.dataset;
  const modes = figure.dataset.modes.split(" ");
  const words = figure.dataset.words.split("|");
  const gpu = figure.dataset.gpu === "cpu" ? null : figure.dataset.gpu;
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption").textContent.trim();
  const below = legend(plot, modes, words, () => draw());
  let u = null;
  let shape = { data: [[]], rows: modes.map(() => []), step: 1 };
  let marks = { drivers: [], regressions: [], usual: new Map(), last_s: null };
  keys(plot, caption, () => u, () => describe(true));

  async function ask(from, until, points, signal) {
    const query = new URLSearchParams({ probe, gpu: gpu ?? "cpu", since: from, until, points });
    for (const mode of modes) query.append("mode", mode);
    return json(`/api/v1/history?${query}`, signal);
  }

  /** Ask, and draw it; gives how long that is good for. Errors: those of json. */
  async function load(signal) {
    const [since, until] = span();
    const points = Math.min(MOST_POINTS, Math.floor(size(plot).width / 2)); // two pixels for each
    let answer = await ask(since, until, points, signal);
    if (answer.source === "runs" && answer.series.length === 0) {
      const middle = (since + until) / 2;
      answer = await ask(middle - HOURS_S / 2, middle + HOURS_S / 2, points, signal);
    }
    const happened = await happenings(since);
    signal.throwIfAborted(); // that was for all charts: another range may be looked at by now
    marks = concerning(happened, { gpu, probe, modes });
    const now_s = Date.now() / 1000;
    const step = answer.step_s;
    shape = { ...aligned(answer.series, modes, step, now_s), step };
    draw();
    // A point more is there after a step; what is long past does not change any more.
    return until > now_s - step ? Math.max(LEAST_MS, (step * 1000) / 4) : Infinity;
  }

  function draw() {
    const logarithmic = spread() > FAR_APART;
    if (u !== null && u.scales.y.distr === (logarithmic ? 3 : 1)) {
      modes.forEach((mode, number) => {
        for (const column of [1, 2, 3]) {
          u.setSeries(3 * number + column, { show: below.shown.has(mode) });
        }
      });
      u.setData(shape.data, false);
    } else {
      u?.destroy();
      u = make(plot, options(logarithmic));
    }
    fit();
    describe();
  }

  function options(logarithmic) {
    const points = { size: 4, filter: (u, index, dense) => (dense ? null : lonely(u.data[index])) };
    const series = modes.flatMap((mode, number) => {
      const show = below.shown.has(mode);
      const edge = { show, stroke: "transparent", points: { show: false } };
      return [line(mode, number, { show, points }), { ...edge }, { ...edge }];
    });
    const band = (number) => ({
      series: [3 * number + 2, 3 * number + 3],
      fill: () => faint(`--series-${number + 1}`),
    });
    return {
      data: shape.data,
      series: [{}, ...series],
      bands: modes.map((_, number) => band(number)),
      axes: [timeAxis(), figureAxis(unit, logarithmic ? { filter: few } : {})],
      scales: {
        x: { auto: false, range: (_, min, max) => [min, max] },
        y: { distr: logarithmic ? 3 : 1, range: (_, min, max) => around(min, max, logarithmic) },
      },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => (zoom(null), null) },
        sync: {
          key: SYNC,
          setSeries: false,
          filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
        },
      },
      hooks: {
        drawClear: [() => u && shade(u, marks.regressions, below.shown)],
        draw: [() => u && (levels(u, marks.usual, modes, below.shown), changes(u, marks.drivers))],
        setCursor: [() => u && describe()],
        setSelect: [(chart) => {
          const window = selected(chart);
          if (window) zoom(window);
        }],
      },
    };
  }

  /** Let the axis of figures hold the usual level as well. */
  function around(min, max, logarithmic) {
    const usual = [...marks.usual].filter(([mode]) => below.shown.has(mode));
    const all = [min, max, ...usual.map(([, level]) => level)].filter((value) => value != null);
    if (all.length === 0) return logarithmic ? [1e-6, 1e-3] : [0, 1];
    const [least, most] = [Math.min(...all), Math.max(...all)];
    if (logarithmic) return [least / 1.3, most * 1.3];
    const room = (most - least) * 0.15 || most * 0.1 || 1;
    return [Math.max(0, least - room), most + room];
  }

  function spread() {
    const columns = modes.map((mode, n) => (below.shown.has(mode) && shape.data[3 * n + 1]) || []);
    const values = columns.flat().filter((value) => value > 0);
    return values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity);
  }

  /** Say what is at the cursor, or else the newest step that lies in what is looked at. */
  function describe(aloud = false) {
    const at = u?.cursor.idx ?? null;
    const xs = shape.data[0];
    const now_s = Date.now() / 1000;
    const [from, to] = span(now_s);
    const within = ({ series, index }) =>
      series.at_s[index] >= from && Math.min(series.at_s[index] + shape.step, now_s) <= to;
    const whole = (_, place) => shape.rows.some((row) => row[place] && within(row[place]));
    const inside = xs[at] >= from && xs[at] <= to ? at : -1;
    const index = at === null ? xs.findLastIndex(whole) : inside;
    const rows = shape.rows.map((row) => row[index] ?? null);
    const point = rows.find((row) => row);
    const at_s = point ? point.series.at_s[point.index] : (xs[index] ?? null);
    const latest = at !== null ? "" : view.zoom === null ? "newest: " : "last in this window: ";
    const last_s = marks.last_s <= to ? marks.last_s : null; // of what goes on after the window
    below.describe({ at_s, latest, rows, unit, step: shape.step, marks: { ...marks, last_s } }, aloud);
  }

  /** Show what is to be looked at, before it is known how that looks. */
  function fit() {
    const [min, max] = span();
    u?.setScale("x", { min, max });
  }

  return {
    load,
    fit,
    redraw: () => (u?.redraw(true, true), describe()),
    resize: () => u?.setSize(size(plot)),
    chart: () => u,
  };
}
