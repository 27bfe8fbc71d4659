// Questions to gpud, and whether it answers: what is on the page while it does not is old.

import { clock, day } from "./time.js";

const PATIENCE_MS = 30_000; // who has not answered then will not: the network is another, or it slept
let since_s = null;

/** Ask for JSON. Errors: Error with gpud's words; whatever fetch throws when nobody answers. */
export async function json(path, signal) {
  const answer = await ask(path, signal);
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw new Error(body.error?.detail ?? `gpud answered ${answer.status}`);
}

/** Ask for anything but what has this tag. */
export async function ask(path, signal, tag) {
  try {
    const headers = tag ? { "if-none-match": tag } : {};
    const ends = AbortSignal.any([AbortSignal.timeout(PATIENCE_MS), ...(signal ? [signal] : [])]);
    const answer = await fetch(path, { headers, signal: ends, cache: "no-store", redirect: "error" });
    if (answer.ok || answer.status === 304) answers(true); // a refusal says nothing newer
    return answer;
  } catch (error) {
    if (error.name !== "AbortError") answers(false, String(error));
    throw error;
  }
}

/** Note whether gpud answers; `why` is for those who look closer. */
export function answers(yes, why = "") {
  if (yes && since_s === null) return;
  since_s = yes ? null : (since_s ?? Date.now() / 1000);
  showReach(why);
}

/** Write since when it does not answer, in the zone in use. */
export function showReach(why = "") {
  document.documentElement.toggleAttribute("data-unreachable", since_s !== null);
  let note = document.getElementById("unreachable");
  if (note === null) {
    if (since_s === null) return;
    note = Object.assign(document.createElement("p"), { id: "unreachable", role: "alert" });
    document.body.prepend(note);
  }
  note.hidden = since_s === null;
  if (since_s === null) return;
  const today = day(since_s) === day(Date.now() / 1000) ? "" : `${day(since_s)} `;
  const text = `cannot reach gpud since ${today}${clock(since_s)}: what is shown is from before`;
  if (note.textContent !== text) note.textContent = text;
  if (why) note.title = why;
}
