// What the page does where scripts run; without them it has everything but charts and moves.

import { adopt, overviews, start as startCharts } from "./charts.js";
import { colour } from "./frame.js";
import { start as startLive } from "./live.js";
import { rewrite } from "./time.js";
import { start as startView, toolbar } from "./view.js";

const EVERY_MS = 1000;
const COPIED_MS = 1500;
const THEME = "gpud.theme";
const ACTIONS = {
  csv: () => overviews().forEach(({ id, table }) => save(`${id}.csv`, new Blob([csv(table)], { type: "text/csv" }))),
  png: () => overviews().forEach(({ id, u }) => u && picture(u).toBlob((blob) => save(`${id}.png`, blob))),
};

document.documentElement.classList.add("js");
theme();
startView();
toolbar();
rewrite(document);
setInterval(() => rewrite(document), EVERY_MS);
addEventListener("click", ({ target }) => {
  const button = target.closest?.("button");
  if (button?.matches(".copy")) copy(button, button.previousElementSibling);
  else if (button) ACTIONS[button.id]?.();
});
startLive(adopt);
startCharts();

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

/** Copy a command, and say so on the button for a moment. Without a secure origin it is selected. */
async function copy(button, typed) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(typed.textContent);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(typed);
    button.textContent = "select and copy";
  }
  setTimeout(() => (button.textContent = words), COPIED_MS);
}

/** The rows as RFC 4180 has them. */
function csv(rows) {
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : (value ?? ""));
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** The canvas of a chart on the page's ground. */
function picture(u) {
  const { canvas } = u.ctx;
  const made = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  const ctx = made.getContext("2d");
  ctx.fillStyle = colour("--back");
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.drawImage(canvas, 0, 0);
  return made;
}

function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { download: name, href: URL.createObjectURL(blob) });
  link.click();
  URL.revokeObjectURL(link.href);
}
