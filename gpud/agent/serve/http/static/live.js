// The page as gpud writes it now, in the place of what it wrote before.
//
// Only differences are carried over, so that focus, what is open and what is scrolled stay. What
// comes is our own server's page, in which everything from outside is escaped; no script of it
// would run, and none is taken.

import { answers, ask } from "./net.js";
import { rewrite } from "./time.js";
import { toolbar } from "./view.js";

const EVERY_MS = 5000;
const OWN = new Set(["open", "hidden", "title", "aria-busy", "data-drawn"]); // the browser's side
let tag;
let busy = false;
let adopt = () => {};

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
    const answer = await ask(location.pathname, AbortSignal.timeout(3 * EVERY_MS), tag);
    if (answer.ok) {
      tag = answer.headers.get("etag") ?? undefined;
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } else if (answer.status !== 304) {
      throw new Error(`gpud answered ${answer.status}`);
    }
  } catch (error) {
    answers(false, error.message); // the next time is soon
  } finally {
    busy = false;
    rewrite(document);
  }
}

function take(page) {
  document.title = page.title;
  attributes(document.documentElement, page.documentElement, ["data-state"]);
  const [main, other] = [document.querySelector("main"), page.querySelector("main")];
  if (main && other && main.dataset.shape !== other.dataset.shape) reshape(main, other);
  for (const fresh of page.querySelectorAll("section[id]")) {
    const here = document.getElementById(fresh.id);
    if (here?.tagName === fresh.tagName) attributes(here, fresh); // its colour
  }
  for (const fresh of page.querySelectorAll("[data-live][id]")) {
    const here = document.getElementById(fresh.id);
    if (here?.tagName === fresh.tagName) patch(here, fresh);
  }
  toolbar();
  adopt();
}

/** Sections or figures came or went: those that have the same figures stay as they are. */
function reshape(main, other) {
  const figures = (section) => [...section.querySelectorAll("figure[id]")]
    .map((figure) => figure.id + (figure.dataset.chart ?? "")).join(" ");
  const sections = [...other.children].map((fresh) => {
    const here = fresh.id ? document.getElementById(fresh.id) : null;
    const same = here?.parentElement === main && figures(here) === figures(fresh);
    return same ? here : taken(fresh);
  });
  main.dataset.shape = other.dataset.shape;
  for (const old of [...main.children]) if (!sections.includes(old)) old.remove();
  sections.forEach((section, index) => {
    // What stays is not moved: it would lose its focus.
    if (main.children[index] !== section) main.insertBefore(section, main.children[index] ?? null);
  });
}

/** Make `old` what `fresh` is, with as little as possible. */
function patch(old, fresh) {
  if (old.matches("time[data-moment]") && old.dateTime === fresh.dateTime) return;
  attributes(old, fresh);
  const nodes = [...fresh.childNodes].filter((node) => node.nodeName !== "SCRIPT");
  nodes.forEach((node, index) => {
    const here = old.childNodes[index];
    if (!here) old.append(taken(node));
    else if (here.nodeName !== node.nodeName || here.id !== node.id) here.replaceWith(taken(node));
    else if (node.nodeType === Node.ELEMENT_NODE) patch(here, node);
    else if (here.nodeValue !== node.nodeValue) here.nodeValue = node.nodeValue;
  });
  while (old.childNodes.length > nodes.length) old.lastChild.remove();
}

function taken(node) {
  const copy = document.importNode(node, true);
  if (copy.nodeType === Node.ELEMENT_NODE) {
    for (const script of copy.querySelectorAll("script")) script.remove();
  }
  return copy;
}

function attributes(old, fresh, names = null) {
  const all = new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()]);
  for (const name of names ?? all) {
    const value = fresh.getAttribute(name);
    if (OWN.has(name) || name.startsWith("on") || old.getAttribute(name) === value) continue;
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
}
