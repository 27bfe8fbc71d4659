// What the page does where scripts run; without them it has everything but charts and moves.

import { start as startLive } from "./live.js";
import { showReach } from "./net.js";
import { rewrite } from "./time.js";
import { listen, start as startView, toolbar } from "./view.js";

const EVERY_MS = 1000;
const AGAIN_MS = 5000;

document.documentElement.classList.add("js");
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

/** The page can be used before there is a chart in it, and while gpud starts anew. */
async function bring() {
  try {
    charts = await import("./charts.js");
  } catch {
    setTimeout(bring, AGAIN_MS); // the page itself says when gpud does not answer
    return;
  }
  charts.start();
  // For those who look closer, in the console: the figures behind the pixels.
  Object.defineProperty(globalThis, "gpud", { value: Object.freeze({ drawn: charts.drawn }) });
}
