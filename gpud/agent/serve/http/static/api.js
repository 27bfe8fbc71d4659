// Questions to gpud: a few at a time, because it answers them one after the other, and not again
// what has not changed.

import { answered, failed } from "./reach.js";

const AT_ONCE = 2;
const AGAIN_MS = 1000;
const TRIES = 5;
const KEPT = 64;
const PATIENCE_MS = 30_000; // who has not answered then will not: the network is another, or it slept
let running = 0;
const waiting = [];
/** @type {Map<string, {tag: string, body: any}>} */
const known = new Map();

/** gpud refused: `message` is its own word for it. */
export class Refused extends Error {}

/**
 * Ask for JSON.
 * @param {string} path with its query
 * @param {AbortSignal} [signal]
 * Errors: Refused; whatever fetch throws when nobody answers.
 */
export async function json(path, signal) {
  await turn(signal);
  try {
    for (let left = TRIES; ; left -= 1) {
      const had = known.get(path); // others may push it out while we ask
      const answer = await asked(path, signal, had?.tag);
      if (answer.status === 304) return had.body;
      if (answer.ok) return kept(path, answer.headers.get("etag"), await answer.json());
      if (answer.status !== 503 || left <= 1) throw new Refused(await reason(answer));
      await pause(AGAIN_MS, signal);
    }
  } finally {
    next();
  }
}

/** Ask for anything but what has this tag; says to the page whether gpud answers. */
export async function asked(path, signal, tag) {
  try {
    const headers = tag ? { "if-none-match": tag } : {};
    const ends = AbortSignal.any([AbortSignal.timeout(PATIENCE_MS), ...(signal ? [signal] : [])]);
    const answer = await fetch(path, { headers, signal: ends, cache: "no-store", redirect: "error" });
    if (answer.ok || answer.status === 304) answered(); // a refusal tells nothing newer
    return answer;
  } catch (error) {
    if (error.name !== "AbortError") failed(String(error));
    throw error;
  }
}

function kept(path, tag, body) {
  known.delete(path);
  if (tag) known.set(path, { tag, body });
  if (known.size > KEPT) known.delete(known.keys().next().value);
  return body;
}

async function turn(signal) {
  if (running < AT_ONCE) running += 1;
  else await new Promise((go) => waiting.push(go));
  if (!signal?.aborted) return;
  next();
  throw signal.reason;
}

/** Hand the place over, so that nobody who comes just now takes it. */
function next() {
  const go = waiting.shift();
  if (go) go();
  else running -= 1;
}

async function reason(answer) {
  try {
    const body = await answer.json();
    return String(body.error?.detail ?? body.detail ?? answer.statusText);
  } catch {
    return `gpud answered ${answer.status}`;
  }
}

function pause(ms, signal) {
  return new Promise((go, stop) => {
    const timer = setTimeout(go, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), stop(signal.reason)), {
      once: true,
    });
  });
}
