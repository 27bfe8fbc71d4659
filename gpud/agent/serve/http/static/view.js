// What is looked at: a range that ends now, or a window into which somebody has zoomed; and in which
// zone. It is in the address, so that it can be sent, is kept for next time, and has a form.

import { moment, offset, zone, zoneInUse } from "./time.js";

const RANGES_S = {
  "1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400, "90d": 90 * 86400,
  "1y": 365 * 86400,
};
const KEY = "gpud.view";
const LEAST_S = 60; // nothing is measured more often than it would take to see more
const MOST_S = 3 * RANGES_S["1y"]; // the API answers no further back, and no more at once
const SHORTEST_S = 600; // so much is drawn of a history that has just begun
const wired = new WeakSet();
const listeners = new Set();

/** @type {{range: keyof RANGES_S, zoom: [number, number] | null}} */
export const view = { range: "24h", zoom: null };

/** Call `changed(what)` after each change; `what` is "time" when only the zone is another. */
export function listen(changed) {
  listeners.add(changed);
}

/** From when until when, in Unix seconds: a range has no more than there is. */
export function span(now_s = Date.now() / 1000) {
  const begin = now_s - RANGES_S[view.range];
  return view.zoom ?? [Math.max(begin, Math.min(first(now_s), now_s - SHORTEST_S)), now_s];
}

/** What is looked at, to tell answers for it from others. */
export function looked() {
  return view.zoom?.join() ?? view.range;
}

/** When gpud's first run was; -Infinity where that is not known, or another clock wrote it. */
export function first(now_s = Date.now() / 1000) {
  const first_s = document.getElementById("figures")?.dataset.firstS;
  return first_s && Number(first_s) <= now_s ? Number(first_s) : -Infinity;
}

/** Look at a window of it, or with null at the whole range again. */
export function zoom(window) {
  if (window === null && view.zoom === null) return;
  if (window !== null) {
    const middle = (window[0] + window[1]) / 2;
    const half = Math.max(window[1] - window[0], LEAST_S) / 2;
    if (!within(middle - half, middle + half)) return;
    window = [middle - half, middle + half];
  }
  view.zoom = window;
  publish("span");
}

/** Read the address, and where it says nothing what was chosen last time; follow it from then on. */
export function start() {
  restore();
  addEventListener("hashchange", () => {
    if (!new URLSearchParams(location.hash.slice(1)).has("range")) return; // a link in the page
    restore();
    publish("span");
  });
}

function restore() {
  const address = new URLSearchParams(location.hash.slice(1));
  const chosen = address.has("range") ? address : new URLSearchParams(stored());
  // What has become slower is shown from before it did, whatever was looked at last time.
  const suggested = document.getElementById("view")?.dataset.suggested;
  const range = (!address.has("range") && suggested) || chosen.get("range");
  if (Object.hasOwn(RANGES_S, range)) view.range = range;
  zoneInUse.utc = chosen.get("utc") === "1";
  const [begin, end] = [Number(address.get("from")), Number(address.get("to"))];
  view.zoom = within(begin, end) ? [begin, end] : null;
}

/** What was chosen last time, or now; a browser may keep nothing for us. */
function stored(choice) {
  try {
    if (choice !== undefined) localStorage.setItem(KEY, choice);
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** Whether it is a window of which something can be known; an address may say anything. */
function within(begin, end) {
  const now = Date.now() / 1000;
  return begin < end && end - begin <= MOST_S && begin >= now - MOST_S && begin < now;
}

function publish(what) {
  const address = new URLSearchParams({ range: view.range });
  if (zoneInUse.utc) address.set("utc", "1");
  stored(address.toString());
  if (view.zoom) {
    address.set("from", view.zoom[0].toFixed(0));
    address.set("to", view.zoom[1].toFixed(0));
  }
  history.replaceState(null, "", `#${address}`);
  toolbar();
  for (const changed of listeners) changed(what);
}

/** Take up the form that the page has by now, and say what it shows. */
export function toolbar() {
  const form = document.getElementById("view");
  if (form === null) return;
  if (!wired.has(form)) wire(form);
  for (const input of form.querySelectorAll("input[name=range]")) {
    input.checked = input.value === view.range && view.zoom === null;
  }
  form.querySelector("#utc").checked = zoneInUse.utc;
  form.querySelector("#reset").hidden = view.zoom === null;
  const [from, to] = span();
  const begun = from - (to - RANGES_S[view.range]) > 1 ? "since the first run, " : "";
  const window = view.zoom === null ? begun : `${moment(from)} to ${moment(to)}, `;
  const far = offset(to) === zone() ? "" : ` (${offset(to)})`;
  form.querySelector("#zone").textContent = `${window}times in ${zone()}${far}`;
}

function wire(form) {
  wired.add(form);
  const button = { id: "reset", type: "button", textContent: "Show the whole range" };
  const back = Object.assign(document.createElement("button"), button);
  form.append(back, Object.assign(document.createElement("span"), { id: "zone" }));
  form.hidden = false;
  form.addEventListener("change", ({ target }) => {
    if (target.name === "range") Object.assign(view, { range: target.value, zoom: null });
    else zoneInUse.utc = target.checked;
    publish(target.name === "range" ? "span" : "time");
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  back.addEventListener("click", () => {
    zoom(null);
    (form.querySelector("input:checked") ?? form).focus(); // the button is gone
  });
}
