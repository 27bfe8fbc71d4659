// Below a chart of history: the exact figures at the cursor, or else the newest, and a button for
// each mode that shows or hides it. And the keys of a chart without a mouse.

import { LINES } from "./frame.js";
import { between, clock, compared, DAY, figure, HOUR, MINUTE, moment, offset } from "./time.js";
import { span, zoom } from "./view.js";

const HELP = "arrow keys move the cursor, plus and minus zoom, Escape shows everything again";

/** Make it after `plot`; `words` name the modes; `toggled()` is called when modes come and go. */
export function legend(plot, modes, words, toggled) {
  const when = element("p", "when");
  const list = element("ul", "modes");
  const spoken = element("p", "spoken hidden");
  spoken.setAttribute("aria-live", "polite"); // filled by the keyboard only: a mouse would chatter
  const shown = new Set(modes);
  const values = modes.map((mode, number) => {
    const button = element("button", `line-${(number % LINES) + 1}`);
    button.type = "button";
    button.append(element("span", "swatch"), words[number]);
    button.setAttribute("aria-pressed", "true");
    button.disabled = modes.length === 1;
    button.addEventListener("click", () => {
      if (shown.has(mode) && shown.size > 1) shown.delete(mode);
      else shown.add(mode);
      button.setAttribute("aria-pressed", String(shown.has(mode)));
      toggled();
    });
    const [item, value] = [element("li", ""), element("span", "value")];
    item.append(button, " ", value);
    list.append(item);
    return value;
  });
  const box = element("div", "legend");
  box.append(when, list, spoken);
  plot.after(box);

  /** Write what is at one moment; `rows` is what each mode has there. */
  function describe({ at_s, latest, rows, unit, step, marks }, aloud = false) {
    if (at_s === null) when.textContent = "no figures in this time";
    else {
      const driver = marks.drivers.findLast((each) => each.at_s <= at_s);
      const notes = driver ? [`driver ${driver.new}`] : [];
      for (const { since_s, until_s, mode, slowdown, why, at_s: judged_s } of marks.regressions) {
        if (at_s < since_s || until_s <= at_s) continue;
        const name = words[modes.indexOf(mode)];
        notes.push(`${name} ${compared(slowdown)} (${why}), judged ${moment(judged_s)}`);
      }
      when.textContent = [`${latest}${time(at_s, step, marks.last_s)}`, ...notes].join(" · ");
    }
    rows.forEach((row, number) => {
      values[number].textContent = value(row, unit, marks.usual.get(modes[number]));
    });
    if (!aloud) return;
    const lines = modes.map((mode, n) => shown.has(mode) && `${words[n]} ${values[n].textContent}`);
    spoken.textContent = [when.textContent, ...lines.filter(Boolean)].join("; ");
  }

  return { shown, describe };
}

/**
 * When that was: of the step with the last run in it the run itself, else from when until when. The
 * form above says which zone that is, and here stands only what is another in it.
 */
function time(at_s, step, last_s) {
  const far = offset(at_s) === offset(span()[1]) ? "" : ` ${offset(at_s)}`;
  if (last_s !== null && at_s <= last_s && last_s < at_s + step) return `${moment(last_s, true)}${far}`;
  const wide = step >= DAY ? `, ${step / DAY} d` : step > HOUR ? `, ${step / HOUR} h` : "";
  const end = step > MINUTE && step <= HOUR ? ` to ${clock(at_s + step)}` : "";
  return `${moment(at_s, step <= MINUTE)}${end}${far}${wide}`;
}

function value(row, unit, usual) {
  const level = usual === undefined ? [] : [`usual ${figure(usual, unit)}`];
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
  const has = (index) =>
    xs[index] >= min && xs[index] <= max &&
    rows.some((row, number) => u.series[number + 1].show && row[index] != null);
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
