// A probe over time on one GPU: medians, bands, the usual level, drivers and regressions.

import { json } from "./api.js";
import { few, figureAxis, line, make, selected, size, timeAxis } from "./frame.js";
import { keys } from "./keyboard.js";
import { legend } from "./legend.js";
import { changes, concerning, happenings, levels, shade } from "./marks.js";
import { aligned, grid, joined, lonely, newest } from "./series.js";
import { faint } from "./theme.js";
import { span, view, zoom } from "./view.js";

const LEAST_MS = 30_000;
const FAR_APART = 12; // modes of so different sizes are seen on a logarithmic axis only
const HOURS_S = 50 * 3600; // so long that the answer is from hours, which are kept for years
const SYNC = "gpud";

/** @param {HTMLElement} figure */
export function history(figure) {
  const { probe, unit } = figure.dataset;
  const modes = figure.dataset.modes.split(" ").filter(Boolean);
  const gpu = figure.dataset.gpu === "cpu" ? null : figure.dataset.gpu;
  const plot = figure.querySelector(".plot");
  const caption = figure.querySelector("figcaption")?.textContent.trim() ?? probe;
  const words = modes.map((mode, number) =>
    figure.dataset.words?.split("|")[number] || mode.replaceAll("_", " "));
  const below = legend(plot, modes, words, () => draw());
  let u = null;
  let grown = null; // {range, grid, series}: what is known of the range that ends now
  let shape = { data: [[]], rows: modes.map(() => []), step: 1 };
  let marks = { drivers: [], regressions: [], baselines: new Map(), last_s: null };
  keys(plot, caption, () => u, () => tell(true));

  async function ask(from, until, points, signal) {
    const query = new URLSearchParams({ probe, gpu: gpu ?? "cpu", since: from, until, points });
    for (const mode of modes) query.append("mode", mode);
    const answer = await json(`/api/v1/history?${query}`, signal);
    return { ...answer, series: answer.series.filter((one) => modes.includes(one.mode)) };
  }

  /** Ask for what is missing, and draw it. Errors: those of json. */
  async function load(signal) {
    const wanted = grid(span(), size(plot).width);
    const { since, until, points, step } = wanted;
    const same = view.zoom === null && grown?.range === view.range && grown.grid.step === step;
    let series;
    if (same) {
      const from = Math.max(since, newest(grown.series, grown.grid.since));
      const begin = Math.min(from, until - 2 * step);
      const fresh = await ask(begin, until, (until - begin) / step, signal);
      series = joined(grown.series, fresh.series, begin, since);
    } else {
      let answer = await ask(since, until, points, signal);
      if (answer.source === "runs" && answer.series.length === 0) {
        const middle = (since + until) / 2;
        answer = await ask(middle - HOURS_S / 2, middle + HOURS_S / 2, points, signal);
      }
      series = answer.series;
      wanted.shown = answer.step_s;
    }
    const happened = await happenings(since);
    signal.throwIfAborted(); // that was for all charts: another range may be looked at by now
    marks = concerning(happened, { gpu, probe, modes });
    grown = view.zoom === null ? { range: view.range, grid: wanted, series } : null;
    const shown = wanted.shown ?? step;
    shape = { ...aligned(series, modes, shown, Date.now() / 1000), step: shown };
    draw();
    // A point more is there after a step; what is long past does not change any more.
    const live = until > Date.now() / 1000 - step;
    return live ? Math.max(LEAST_MS, (step * 1000) / 4) : Infinity;
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
      fit();
    } else {
      u?.destroy();
      u = make(plot, options(logarithmic));
      fit();
    }
    tell();
  }

  function options(logarithmic) {
    const series = [{}];
    const bands = [];
    modes.forEach((mode, number) => {
      const show = below.shown.has(mode);
      const edge = { show, stroke: "transparent", points: { show: false } };
      const at = series.length;
      const points = { size: 4, filter: (_, index, dense) => (dense ? null : lonely(u.data[index])) };
      series.push(line(mode, number, { show, points }), { ...edge }, { ...edge });
      bands.push({ series: [at + 1, at + 2], fill: () => faint(`--series-${number + 1}`) });
    });
    return {
      data: shape.data,
      series,
      bands,
      axes: [timeAxis(), figureAxis(unit, logarithmic ? { filter: few } : {})],
      scales: {
        x: { time: false, auto: false, range: (_, min, max) => [min, max] },
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
        draw: [() => u && (levels(u, marks.baselines, modes, below.shown), changes(u, marks.drivers))],
        setCursor: [() => u && tell()],
        setSelect: [(chart) => {
          const window = selected(chart);
          if (window) zoom(window);
        }],
      },
    };
  }

  /** Let the axis of figures hold the usual level as well. */
  function around(min, max, logarithmic) {
    const usual = [...marks.baselines].filter(([mode]) => below.shown.has(mode));
    const all = [min, max, ...usual.map(([, level]) => level)].filter((one) => one != null);
    if (all.length === 0) return logarithmic ? [1e-6, 1e-3] : [0, 1];
    const [least, most] = [Math.min(...all), Math.max(...all)];
    if (logarithmic) return [least / 1.3, most * 1.3];
    const room = (most - least) * 0.15 || most * 0.1 || 1;
    return [Math.max(0, least - room), most + room];
  }

  function spread() {
    const shown = modes.map((mode, number) => [mode, shape.data[3 * number + 1] ?? []]);
    const known = shown
      .filter(([mode]) => below.shown.has(mode))
      .flatMap(([, values]) => values.filter((one) => one > 0));
    return known.reduce((a, b) => Math.max(a, b), 0) / known.reduce((a, b) => Math.min(a, b), Infinity);
  }

  function tell(aloud = false) {
    const at = u?.cursor.idx ?? null;
    const known = shape.data[0];
    const now_s = Date.now() / 1000;
    const [from, to] = span(now_s);
    const end = (at_s) => Math.min(at_s + shape.step, now_s);
    const within = ({ series, index }) => series.at_s[index] >= from && end(series.at_s[index]) <= to;
    const whole = (_, place) => shape.rows.some((row) => row[place] && within(row[place]));
    const seen = known[at] >= from && known[at] <= to ? at : -1;
    const index = at === null ? known.findLastIndex(whole) : seen;
    const rows = shape.rows.map((row) => row[index] ?? null);
    const one = rows.find((row) => row);
    const at_s = one ? one.series.at_s[one.index] : (known[index] ?? null);
    const latest = at !== null ? "" : view.zoom === null ? "newest: " : "last in this window: ";
    const last_s = marks.last_s <= to ? marks.last_s : null; // of what goes on after the window
    below.tell({ at_s, latest, rows, unit, step: shape.step, marks: { ...marks, last_s } }, aloud);
  }

  /** Show what is to be looked at, before it is known how that looks. */
  function fit() {
    if (u === null) return;
    const [min, max] = span();
    u.setScale("x", { min, max });
  }

  return {
    load,
    fit,
    redraw: () => (u?.redraw(true), tell()),
    resize: () => u?.setSize(size(plot)),
    chart: () => u,
  };
}
