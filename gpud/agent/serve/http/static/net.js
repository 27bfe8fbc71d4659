// Questions to gpud, and whether it answers: what is on the page while it does not is old.

import { clock } from "./time.js";

const PATIENCE_MS = 30_000; // who has not answered then will not: the network is another, or it slept
const FRESH_MS = 10_000;
/** @type {Map<string, {asked_ms: number, answer: Promise<any>}>} */
const kept = new Map();
let since_s = null;

/** Ask for JSON, once for all charts that ask the same within some seconds. Errors: those of json. */
export function shared(path) {
  for (const [each, { asked_ms }] of kept) if (performance.now() - asked_ms >= FRESH_MS) kept.delete(each);
  if (!kept.has(path)) {
    const answer = json(path);
    kept.set(path, { asked_ms: performance.now(), answer });
    answer.catch(() => kept.delete(path));
  }
  return kept.get(path).answer;
}

/** Errors: Error with gpud's words; whatever fetch throws when nobody answers. */
async function json(path) {
  const answer = await ask(path);
  if (answer.ok) return answer.json();
  const body = await answer.json().catch(() => ({}));
  throw new Error(body.error?.detail ?? `gpud answered ${answer.status}`);
}

/** Ask for anything but what has this tag. */
export async function ask(path, tag) {
  try {
    const headers = tag ? { "if-none-match": tag } : {};
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
    if (answer.ok || answer.status === 304) showReach(true); // a refusal says nothing newer
    return answer;
  } catch (error) {
    showReach(false, String(error));
    throw error;
  }
}

/** Write since when gpud does not answer; `why` is for those who look closer. */
export function showReach(answers, why = "") {
  if (answers && since_s === null) return;
  since_s = answers ? null : (since_s ?? Date.now() / 1000);
  document.documentElement.toggleAttribute("data-unreachable", since_s !== null);
  let note = document.getElementById("unreachable");
  if (note === null) {
    note = Object.assign(document.createElement("p"), { id: "unreachable", role: "alert" });
    document.body.prepend(note);
  }
  note.hidden = since_s === null;
  if (since_s === null) return;
  const text = `cannot reach gpud since ${clock(since_s)}: what is shown is from before`;
  if (note.textContent !== text) note.textContent = text;
  note.title = why;
}
