// Whether gpud answers. What stays on the page when it does not is old, and the page says so.

import { clock, day } from "./time.js";

let since_s = null;
let element = null;

/** It has answered. */
export function answered() {
  if (since_s === null) return;
  since_s = null;
  show();
}

/** It has not; `why` is for those who look closer. */
export function failed(why = "") {
  since_s ??= Date.now() / 1000;
  show(why);
}

/** Write it again: the clock in use is another. */
export function show(why = "") {
  document.documentElement.toggleAttribute("data-unreachable", since_s !== null);
  if (element === null) {
    if (since_s === null) return;
    element = document.createElement("p");
    element.id = "unreachable";
    element.setAttribute("role", "alert");
    document.body.prepend(element);
  }
  element.hidden = since_s === null;
  if (since_s === null) return;
  const today = day(since_s) === day(Date.now() / 1000);
  const text =
    `cannot reach gpud since ${today ? "" : `${day(since_s)} `}${clock(since_s)}: ` +
    "what is shown is from before";
  if (element.textContent !== text) element.textContent = text;
  if (why) element.title = why;
}
