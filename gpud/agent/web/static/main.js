// What the page does where scripts run; without them it has everything but charts and moves.

import { style } from "./library.js";
import { start as startLive } from "./live.js";
import { show as showReach } from "./reach.js";
import { rewrite } from "./time.js";
import { toolbar } from "./toolbar.js";
import { follow, listen, restore } from "./view.js";

const EVERY_MS = 1000;

document.documentElement.classList.add("js");
style();
restore();
follow();
toolbar();
listen(() => {
  showReach();
  rewrite(document);
});
rewrite(document);
setInterval(() => rewrite(document), EVERY_MS);
let charts = null;
startLive(() => charts?.adopt());
// The page can be used before there is a chart in it.
import("./charts.js").then((loaded) => {
  charts = loaded;
  charts.start();
  // For those who look closer, in the console: the figures behind the pixels.
  Object.defineProperty(globalThis, "gpud", { value: Object.freeze({ drawn: charts.drawn }) });
});
