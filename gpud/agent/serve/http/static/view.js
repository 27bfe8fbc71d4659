// What is looked at: a range that ends now, or a window into which somebody has zoomed. It is in the
// address, so that it can be sent, is kept for next time, and has a form.

import { moment, zone } from "./time.js";

const RANGES_S = {
  "1h": 3600, "6h": 6 * 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400, "90d": 90 * 86400,
  "1y": 365 * 86400,
};
const KEY = "gpud.view";
const LEAST_S = 60; // nothing is measured more often than it would take to see more
const MOST_S = 3 * RANGES_S["1y"]; // the API answers no further back, and no more at once
const SHORTEST_S = 600; // so much is drawn of a history that has just begun
const ROUND_S = 10;
const POINTS = 300;
const listeners = new Set();
let wired = null;

/** @type {{range: keyof RANGES_S, zoom: [number, number] | null}} */
export const view = { range: "24h", zoom: null };

/** Call `changed` after each change. */
export function listen(changed) {
  listeners.add(changed);
}

/** From when until when, in Unix seconds: a range has no more than there is. */
export function span(now_s = Date.now() / 1000) {
  const begin = now_s - RANGES_S[view.range];
  return view.zoom ?? [Math.max(begin, Math.min(first(now_s), now_s - SHORTEST_S)), now_s];
}

/** The query for that time, with some seconds more: charts that ask together ask the same. */
export function query(names) {
  const [since, until] = span();
  const round = (at_s, to) => to(at_s / ROUND_S) * ROUND_S;
  const ends = { since: round(since, Math.floor), until: round(until, Math.ceil) };
  return new URLSearchParams({ ...names, ...ends, points: POINTS });
}

/** When gpud's first run was; -Infinity where that is not known, or another clock wrote it. */
export function first(now_s = Date.now() / 1000) {
  const first_s = document.getElementById("figures")?.dataset.firstS;
  return first_s && Number(first_s) <= now_s ? Number(first_s) : -Infinity;
}

/** Look at a window of it, or with null at the whole range again. */
export function zoom(window) {
  if (window !== null && window[1] - window[0] < LEAST_S) return;
  if (window === view.zoom || (window !== null && !within(...window))) return;
  view.zoom = window;
  publish();
}

/** Read the address, and where it says nothing what was chosen last time; follow it from then on. */
export function start() {
  restore();
  addEventListener("hashchange", () => {
    if (!new URLSearchParams(location.hash.slice(1)).has("range")) return; // a link in the page
    restore();
    publish();
  });
}

function restore() {
  const address = new URLSearchParams(location.hash.slice(1));
  // What has become slower is shown from before it did, whatever was looked at last time.
  const suggested = document.getElementById("view")?.dataset.suggested;
  const range = address.get("range") ?? (suggested || stored());
  if (Object.hasOwn(RANGES_S, range)) view.range = range;
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

function publish() {
  const address = new URLSearchParams({ range: view.range });
  stored(view.range);
  if (view.zoom) {
    address.set("from", view.zoom[0].toFixed(0));
    address.set("to", view.zoom[1].toFixed(0));
  }
  history.replaceState(null, "", `#${address}`);
  toolbar();
  for (const changed of listeners) changed();
}

/** Take up the form that the page has by now, and say what it shows. */
export function toolbar() {
  const form = document.getElementById("view");
  if (form === null) return;
  if (wired !== form) wire(form);
  for (const input of form.querySelectorAll("input[name=range]")) {
    input.checked = input.value === view.range && view.zoom === null;
  }
  form.querySelector("#reset").hidden = view.zoom === null;
  const [from, to] = span();
  const begun = from - (to - RANGES_S[view.range]) > 1 ? "since the first run, " : "";
  const window = view.zoom === null ? begun : `${moment(from)} to ${moment(to)}, `;
  form.querySelector("#zone").textContent = `${window}times in ${zone(to)}`;
}

function wire(form) {
  wired = form;
  form.hidden = false;
  form.addEventListener("change", ({ target }) => {
    Object.assign(view, { range: target.value, zoom: null });
    publish();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("#reset").addEventListener("click", () => {
    zoom(null);
    form.querySelector("input:checked").focus(); // the button is gone
  });
}
