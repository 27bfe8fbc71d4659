// Below a chart: the exact figures at the cursor, or else the newest. And its keys without a mouse.

import { between, clock, compared, DAY, figure, HOUR, MINUTE, moment, offset } from "./time.js";
import { span, zoom } from "./view.js";

const HELP = "arrow keys move the cursor, plus and minus zoom, Escape shows everything again";

/** Make it after `plot`; `isPercent`: of many metrics, whose figures are shown at the cursor only. */
export function legend(plot, isPercent) {
  const [when, list, spoken] = [element("p", "when"), element("ul", "modes"), element("p", "spoken hidden")];
  spoken.setAttribute("aria-live", "polite"); // filled by the keyboard only: a mouse would chatter
  const box = element("div", "legend");
  box.append(when, list, spoken);
  plot.after(box);

  /** Write what is at one moment; each of `lines` is a metric and what it has there. */
  function describe({ at_s, latest, lines, step, drivers, to }, aloud = false) {
    const idle = isPercent && latest !== "";
    if (at_s === null) when.textContent = "no figures in this time";
    else if (idle) when.textContent = "point at the chart, or at a row above to see its line";
    else {
      const driver = drivers.findLast((each) => each.at_s <= at_s);
      const notes = driver ? [`driver ${driver.new}`] : [];
      for (const { words, slower } of lines) {
        for (const { since_s, until_s, slowdown, why, at_s: judged_s } of slower) {
          if (at_s < since_s || until_s <= at_s) continue;
          notes.push(`${words} ${compared(slowdown)} (${why}), judged ${moment(judged_s)}`);
        }
      }
      const last_s = isPercent ? null : lines[0]?.last_s;
      when.textContent = [`${latest}${time(at_s, step, last_s <= to ? last_s : null)}`, ...notes].join(" · ");
    }
    const texts = lines.map((line) => value(line, isPercent));
    list.replaceChildren(...(idle ? [] : lines.map(({ words }, number) => {
      const item = element("li", "");
      item.append(isPercent ? `${words} ` : "", element("span", "value"));
      item.lastChild.textContent = texts[number];
      return item;
    })));
    if (!aloud) return;
    spoken.textContent = [when.textContent, ...lines.map(({ words }, n) => `${words} ${texts[n]}`)].join("; ");
  }

  return { describe };
}

/**
 * When that was: of the step with the last run in it the run itself, else from when until when. The
 * form above says which zone that is, and here stands only what is another in it.
 */
function time(at_s, step, last_s) {
  const far = offset(at_s) === offset(span()[1]) ? "" : ` ${offset(at_s)}`;
  if (last_s && at_s <= last_s && last_s < at_s + step) return `${moment(last_s, true)}${far}`;
  const wide = step >= DAY ? `, ${step / DAY} d` : step > HOUR ? `, ${step / HOUR} h` : "";
  const end = step > MINUTE && step <= HOUR ? ` to ${clock(at_s + step)}` : "";
  return `${moment(at_s, step <= MINUTE)}${end}${far}${wide}`;
}

function value({ row, unit, usual, percent }, isPercent) {
  if (isPercent) return figure(percent, "percent");
  const level = usual === null ? [] : [`usual ${figure(usual, unit)}`];
  if (!row) return ["no figure", ...level].join("; ");
  const { series, index } = row;
  const [n, marked] = [series.n[index], series.marked[index]];
  const [median, p10, p90] = ["median", "p10", "p90"].map((name) => series[name][index] ?? null);
  const runs = [`${n} ${n === 1 ? "run" : "runs"}`, ...(marked > 0 ? [`${marked} not compared`] : [])];
  if (median === null) return `no figure (${runs.join(", ")})`;
  const hasBand = p10 !== null && p90 !== null && n > 1;
  const band = hasBand ? [`p10 to p90 ${between(p10, p90, unit)}`] : [];
  return `${figure(median, unit)} (${[...band, ...runs, ...level].join(", ")})`;
}

function element(name, kind) {
  return Object.assign(document.createElement(name), kind ? { className: kind } : {});
}

/** Let the keyboard into `plot`; `moved()` is called after a key. */
export function keys(plot, name, chart, moved) {
  plot.tabIndex = 0;
  // The keys are the chart's own, and a screen reader passes them on to nothing else.
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-roledescription", "chart");
  plot.setAttribute("aria-label", `${name}: ${HELP}`);
  plot.addEventListener("keydown", (event) => {
    const u = chart();
    const act = ACTIONS[event.key];
    if (u === null || !act || event.ctrlKey || event.altKey || event.metaKey) return;
    act(u);
    event.preventDefault();
    moved();
  });
}

const ACTIONS = {
  ArrowLeft: (u) => move(u, (u.cursor.idx ?? u.data[0].length) - 1, -1),
  ArrowRight: (u) => move(u, (u.cursor.idx ?? -1) + 1, 1),
  "+": (u) => scale(u, 0.5),
  "-": (u) => scale(u, 2),
  Escape: () => zoom(null),
};

/** Go to the place, or on from it to the next one in sight that has a figure. */
function move(u, place, direction) {
  const [xs, ...rows] = u.data;
  const { min, max } = u.scales.x;
  const has = (index) => xs[index] >= min && xs[index] <= max && rows.some((row) => row[index] != null);
  let index = Math.min(Math.max(place, 0), xs.length - 1);
  while (index >= 0 && index < xs.length && !has(index)) index += direction;
  if (has(index)) u.setCursor({ left: u.valToPos(xs[index], "x"), top: u.over.clientHeight / 2 }, true, true);
}

function scale(u, factor) {
  const [from, to] = span();
  const middle = u.cursor.idx == null ? (from + to) / 2 : u.data[0][u.cursor.idx];
  const half = ((to - from) / 2) * factor;
  zoom([middle - half, Math.min(middle + half, Math.max(to, Date.now() / 1000))]);
}
