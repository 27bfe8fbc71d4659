// The page as gpud writes it now, in the place of what it wrote before.
//
// Only differences are carried over, so that focus, what is open and what is scrolled stay. What
// comes is our own server's page, in which everything from outside is escaped; a script that a
// DOMParser has read does not run.

import { ask, showReach } from "./net.js";
import { rewrite } from "./time.js";
import { toolbar } from "./view.js";

const EVERY_MS = 5000;
// What scripts and the reader change is left as it is.
const OWN = new Set(["open", "hidden", "title", "aria-busy", "data-drawn"]);
const DRAWN = ".plot, #view";
const ADDED = ".legend, .trouble, .spark";
let tag;
let busy = false;
let adopt;

/** Begin; `changed()` is called after each change. */
export function start(changed) {
  adopt = changed;
  setInterval(update, EVERY_MS);
  document.addEventListener("visibilitychange", update);
}

/** Fetch the page and carry over what is new. */
export async function update() {
  if (document.hidden || busy) return;
  busy = true;
  try {
    const answer = await ask(location.pathname, tag);
    if (answer.ok) {
      tag = answer.headers.get("etag") ?? undefined;
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } else if (answer.status !== 304) showReach(false, `gpud answered ${answer.status}`);
  } catch {
    // the page says so, and the next time is soon
  } finally {
    busy = false;
    rewrite(document);
  }
}

function take(page) {
  document.title = page.title;
  document.documentElement.dataset.state = page.documentElement.dataset.state;
  for (const part of ["nav", "main", "footer"]) {
    patch(document.querySelector(part), page.querySelector(part));
  }
  toolbar();
  adopt();
}

/**
 * Make `old` what `fresh` is, with as little as possible. Nothing that stays is moved: it would lose
 * its focus.
 */
function patch(old, fresh) {
  if (old.matches(DRAWN) || (old.matches("time[data-moment]") && old.dateTime === fresh.dateTime)) return;
  attributes(old, fresh);
  const here = [...old.childNodes].filter((node) => !node.matches?.(ADDED));
  for (const node of fresh.childNodes) {
    const among = node.id ? here : here.slice(0, 1);
    const place = among.findIndex((each) => alike(each, node));
    if (place < 0) {
      old.insertBefore(document.importNode(node, true), here[0] ?? null);
      continue;
    }
    for (const gone of here.splice(0, place)) gone.remove();
    const same = here.shift();
    if (node.nodeType === Node.ELEMENT_NODE) patch(same, node);
    else if (same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
  }
  for (const gone of here) gone.remove();
}

function alike(here, node) {
  return here.nodeName === node.nodeName && here.id === node.id;
}

function attributes(old, fresh) {
  for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
    const value = fresh.getAttribute(name);
    if (OWN.has(name) || old.getAttribute(name) === value) continue;
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
}
