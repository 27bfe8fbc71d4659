// What the page does where scripts run; without them it has everything but charts and moves.

import { start as startLive } from "./live.js";
import { showReach } from "./net.js";
import { rewrite } from "./time.js";
import { listen, start as startView, toolbar } from "./view.js";

const EVERY_MS = 1000;
const THEME = "gpud.theme";
const AGAIN_MS = 5000;

document.documentElement.classList.add("js");
theme();
startView();
toolbar();
listen(() => {
  showReach();
  rewrite(document);
});
rewrite(document);
setInterval(() => rewrite(document), EVERY_MS);
let charts = null;
startLive(() => charts?.adopt());
bring();

/** Colours as the reader chose them, or as the browser has them. */
function theme() {
  const choice = document.getElementById("theme");
  const apply = () => (document.documentElement.style.colorScheme = choice.value);
  choice.hidden = false;
  try {
    choice.value = localStorage.getItem(THEME) ?? choice.value;
  } catch {
    // a browser may keep nothing for us
  }
  apply();
  choice.addEventListener("change", () => {
    apply();
    try {
      localStorage.setItem(THEME, choice.value);
    } catch {
      // it holds until the page is closed
    }
  });
}

/** The page can be used before there is a chart in it, and while gpud starts anew. */
async function bring() {
  try {
    charts = await import("./charts.js");
    (await import("./take.js")).start();
  } catch {
    setTimeout(bring, AGAIN_MS); // the page itself says when gpud does not answer
    return;
  }
  charts.start();
  // For those who look closer, in the console: the figures behind the pixels.
  Object.defineProperty(globalThis, "gpud", { value: Object.freeze({ drawn: charts.drawn }) });
}
