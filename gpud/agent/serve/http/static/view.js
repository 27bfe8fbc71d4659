// What is looked at: a range that ends now, or a window into which somebody has zoomed; and whose
// clock tells the time. It is in the address, so that it can be sent, and is kept for next time.

export const RANGES_S = {
  "1h": 3600,
  "6h": 6 * 3600,
  "24h": 86400,
  "7d": 7 * 86400,
  "30d": 30 * 86400,
  "90d": 90 * 86400,
  "1y": 365 * 86400,
};
const KEY = "gpud.view";
const LEAST_S = 60; // nothing is measured more often than it would take to see more
const MOST_S = 3 * RANGES_S["1y"]; // the API answers no further back, and no more at once
const SHORTEST_S = 600; // so much is drawn of a history that has just begun

/** @type {{range: keyof RANGES_S, utc: boolean, zoom: [number, number] | null}} */
export const view = { range: "24h", utc: false, zoom: null };
const listeners = new Set();

/**
 * Call `changed(what)` after each change; `what` is "time" when only the clock is another. Gives
 * what ends it.
 */
export function listen(changed) {
  listeners.add(changed);
  return () => listeners.delete(changed);
}

/** From when until when, in Unix seconds: a range has no more than there is. */
export function span(now_s = Date.now() / 1000) {
  const begin = now_s - RANGES_S[view.range];
  return view.zoom ?? [Math.max(begin, Math.min(first(now_s), now_s - SHORTEST_S)), now_s];
}

/** When gpud's first run was; -Infinity where that is not known, or another clock wrote it. */
export function first(now_s = Date.now() / 1000) {
  const told = document.getElementById("figures")?.dataset.firstS;
  return told && Number(told) <= now_s ? Number(told) : -Infinity;
}

export function choose(range) {
  if (!Object.hasOwn(RANGES_S, range)) return;
  Object.assign(view, { range, zoom: null });
  told("span");
}

/** Look at a window of it, or with null at the whole range again. */
export function zoom(window) {
  if (window === null && view.zoom === null) return;
  if (window !== null) {
    const middle = (window[0] + window[1]) / 2;
    const half = Math.max(window[1] - window[0], LEAST_S) / 2;
    if (!known(middle - half, middle + half)) return;
    view.zoom = [middle - half, middle + half];
  } else {
    view.zoom = null;
  }
  told("span");
}

export function setUtc(utc) {
  view.utc = utc;
  told("time");
}

/** Read the address, and where it says nothing what was chosen last time. */
export function restore() {
  const said = new URLSearchParams(location.hash.slice(1));
  const kept = new URLSearchParams(remembered());
  const from = said.has("range") ? said : kept;
  if (Object.hasOwn(RANGES_S, from.get("range"))) view.range = from.get("range");
  view.utc = from.get("utc") === "1";
  const [begin, end] = [Number(said.get("from")), Number(said.get("to"))];
  view.zoom = known(begin, end) ? [begin, end] : null;
}

/** Whether it is a window of which something can be known; an address may say anything. */
function known(begin, end) {
  const now = Date.now() / 1000;
  return begin < end && end - begin <= MOST_S && begin >= now - MOST_S && begin < now;
}

/** Follow the address when somebody edits it or goes back. */
export function follow() {
  addEventListener("hashchange", () => {
    if (!new URLSearchParams(location.hash.slice(1)).has("range")) return; // a link in the page
    restore();
    told("span");
  });
}

function told(what) {
  const said = new URLSearchParams({ range: view.range });
  if (view.utc) said.set("utc", "1");
  remember(said.toString());
  if (view.zoom) {
    said.set("from", view.zoom[0].toFixed(0));
    said.set("to", view.zoom[1].toFixed(0));
  }
  history.replaceState(null, "", `#${said}`);
  for (const changed of listeners) changed(what);
}

// A browser may keep nothing for us: then the address alone knows.
function remembered() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

function remember(text) {
  try {
    localStorage.setItem(KEY, text);
  } catch {
    /* as above */
  }
}
