// What stands below a chart of history: the exact figures at the cursor, or else the newest, and a
// button for each mode that shows or hides it.

import { LINES } from "./frame.js";
import { clock, DAY, HOUR, MINUTE, moment, offset } from "./time.js";
import { between, compared, figure } from "./units.js";
import { span } from "./view.js";

/** Make it after `plot`; `words` are what people call the modes; `toggled()` is called when modes come and go. */
export function legend(plot, modes, words, toggled) {
  const box = element("div", "legend");
  const when = element("p", "when");
  const list = element("ul", "modes");
  const spoken = element("p", "spoken hidden");
  spoken.setAttribute("aria-live", "polite"); // filled by the keyboard only: a mouse would chatter
  const shown = new Set(modes);
  const values = modes.map((mode, number) => {
    const item = element("li", "");
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
    const value = element("span", "value");
    item.append(button, " ", value);
    list.append(item);
    return value;
  });
  box.append(when, list, spoken);
  plot.after(box);

  /** Tell of one moment; `rows` is what each mode has there. */
  function tell({ at_s, latest, rows, unit, step, marks }, aloud = false) {
    const notes = [];
    if (at_s === null) {
      when.textContent = "no figures in this time";
    } else {
      const stood = marks.drivers.findLast((one) => one.at_s <= at_s);
      if (stood) notes.push(`driver ${stood.new}`);
      for (const one of marks.regressions) {
        if (one.since_s <= at_s && at_s < one.until_s) {
          const name = words[modes.indexOf(one.mode)];
          notes.push(`${name} ${compared(one.slowdown)} (${one.why}), judged ${moment(one.at_s)}`);
        }
      }
      when.textContent = [`${latest}${time(at_s, step, marks.last_s)}`, ...notes].join(" · ");
    }
    rows.forEach((row, number) => {
      values[number].textContent = told(row, unit, marks.baselines.get(modes[number]));
    });
    if (aloud) {
      const said = modes
        .filter((mode) => shown.has(mode))
        .map((mode) => modes.indexOf(mode))
        .map((number) => `${words[number]} ${values[number].textContent}`);
      spoken.textContent = [when.textContent, ...said].join("; ");
    }
  }

  return { shown, tell };
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

function told(row, unit, usual) {
  if (!row) return usual === undefined ? "no figure" : `no figure; usual ${figure(usual, unit)}`;
  const { series, index } = row;
  const [median, p10, p90] = ["median", "p10", "p90"].map((name) => series[name][index] ?? null);
  const runs = [`${series.n[index]} ${series.n[index] === 1 ? "run" : "runs"}`];
  if (series.marked[index] > 0) runs.push(`${series.marked[index]} left out`);
  if (median === null) return `no figure (${runs.join(", ")})`;
  const band = p10 !== null && p90 !== null && series.n[index] > 1
    ? [`p10 to p90 ${between(p10, p90, unit)}`] : [];
  const level = usual === undefined ? [] : [`usual ${figure(usual, unit)}`];
  return `${figure(median, unit)} (${[...band, ...runs, ...level].join(", ")})`;
}

function element(name, kind) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  return made;
}
