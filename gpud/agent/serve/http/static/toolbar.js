// The form that says which time is shown, and in which zone.

import { moment, offset, zone } from "./time.js";
import { choose, listen, RANGES_S, setUtc, span, view, zoom } from "./view.js";

const wired = new WeakSet();
let forget = () => {};
let show = () => {};

/** Take up the form that the page has by now, and say what it shows. */
export function toolbar() {
  const form = document.getElementById("view");
  if (form === null || wired.has(form)) return show();
  wired.add(form);
  const utc = document.getElementById("utc");
  const range = document.getElementById("range");
  const note = Object.assign(document.createElement("span"), { id: "zone" });
  const back = Object.assign(document.createElement("button"), {
    id: "reset",
    type: "button",
    textContent: "Show the whole range",
  });
  form.append(back, note);
  form.hidden = false;
  if (range !== null) range.hidden = false;

  show = () => {
    for (const one of form.querySelectorAll("input[name=range]")) {
      one.checked = one.value === view.range && view.zoom === null;
    }
    if (utc !== null) utc.checked = view.utc;
    back.hidden = view.zoom === null;
    const [from, to] = span();
    const begun = from - (to - RANGES_S[view.range]) > 1 ? "since the first run, " : "";
    const seen = view.zoom === null ? begun : `${moment(from)} to ${moment(to)}, `;
    const far = offset(to) === zone() ? "" : ` (${offset(to)})`;
    note.textContent = `${seen}times in ${zone()}${far}`;
  };
  form.addEventListener("change", ({ target }) => {
    if (target.name === "range") choose(target.value);
    if (target === utc) setUtc(utc.checked);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  back.addEventListener("click", () => {
    zoom(null);
    (form.querySelector("input:checked") ?? form).focus(); // the button is gone
  });
  forget(); // the form of before, and all that hangs on it
  forget = listen(show);
  show();
}
