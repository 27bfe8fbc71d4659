// What the page does where scripts run; without them it has everything but charts and moves.

import { drawn, start as startCharts } from "./charts.js";
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
startCharts();
startLive();
// For those who look closer, in the console: the figures behind the pixels.
Object.defineProperty(globalThis, "gpud", { value: Object.freeze({ drawn }) });
