// A chart without a mouse: arrows move the cursor, + and - zoom about it, Escape shows all again.

import { span, zoom } from "./view.js";

const HELP = "arrow keys move the cursor, plus and minus zoom, Escape shows everything again";
const FAR = 10;

/**
 * Let the keyboard into `plot`.
 * @param {HTMLElement} plot
 * @param {string} name of the chart
 * @param {() => uPlot | null} chart
 * @param {() => void} moved called after the cursor was moved by a key
 */
export function keys(plot, name, chart, moved) {
  plot.tabIndex = 0;
  // The keys are the chart's own, and a screen reader passes them on to nothing else.
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-roledescription", "chart");
  plot.setAttribute("aria-label", `${name}: ${HELP}`);
  plot.addEventListener("keydown", (event) => {
    const u = chart();
    if (u === null || event.ctrlKey || event.altKey || event.metaKey) return;
    if (!pressed(u, event.key, event.shiftKey)) return;
    event.preventDefault();
    moved();
  });
}

function pressed(u, key, shift) {
  const [xs] = u.data;
  const here = u.cursor.idx ?? null;
  const by = shift ? FAR : 1;
  switch (key) {
    case "ArrowLeft":
      return move(u, here === null ? xs.length - 1 : here - by, -1);
    case "ArrowRight":
      return move(u, here === null ? 0 : here + by, 1);
    case "Home":
      return move(u, 0, 1);
    case "End":
      return move(u, xs.length - 1, -1);
    case "+":
    case "=":
      return scale(u, 0.5);
    case "-":
      return scale(u, 2);
    case "Escape":
    case "0":
      zoom(null);
      return true;
    default:
      return false;
  }
}

/** Go to the place, or on from it to the next one in sight that has a figure. */
function move(u, place, direction) {
  const [xs, ...rows] = u.data;
  const { min, max } = u.scales.x;
  const seen = (index) =>
    xs[index] >= min && xs[index] <= max &&
    rows.some((row, number) => u.series[number + 1].show && row[index] != null);
  let index = Math.min(Math.max(place, 0), xs.length - 1);
  while (index >= 0 && index < xs.length && !seen(index)) index += direction;
  if (!seen(index)) return true;
  const left = u.valToPos(xs[index], "x");
  u.setCursor({ left, top: u.over.clientHeight / 2 }, true, true);
  return true;
}

function scale(u, factor) {
  const [from, to] = span();
  const middle = u.cursor.idx == null ? (from + to) / 2 : u.data[0][u.cursor.idx];
  const half = ((to - from) / 2) * factor;
  zoom([middle - half, Math.min(middle + half, Math.max(to, Date.now() / 1000))]);
  return true;
}
