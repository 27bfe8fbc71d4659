// Colours and type come from the style sheet; a canvas has to be told of them, and of a change.

const known = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** The value of a custom property of the page, as "--series-1". */
export function colour(name) {
  if (!known.has(name)) {
    known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return known.get(name);
}

/** The same, so thin that lines are seen through it; colours of the page are six digits. */
export function faint(name) {
  return `${colour(name)}26`;
}

/** The type of what is written into a chart, in pixels of the page. */
export function font(size = 12) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

/** Call `changed` when the page turns dark or light. */
export function listen(changed) {
  const again = () => {
    known.clear();
    changed();
  };
  dark.addEventListener("change", again);
  matchMedia("(forced-colors: active)").addEventListener("change", again);
}
