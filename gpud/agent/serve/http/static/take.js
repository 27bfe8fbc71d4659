// What a reader takes away: a command, the address of what is shown, its figures, its picture.

import { overviews } from "./charts.js";
import { colour } from "./frame.js";

const SAID_MS = 1500;

/** Copy a text, and say so on the button for a moment. Without a secure origin it is selected. */
async function copy(button, text, typed) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    if (typed) getSelection().selectAllChildren(typed);
    button.textContent = "select and copy";
  }
  setTimeout(() => (button.textContent = words), SAID_MS);
}

const ACTIONS = {
  link: (button) => copy(button, location.href),
  csv: () => overviews().forEach(({ id, table }) => save(`${id}.csv`, new Blob([csv(table)], { type: "text/csv" }))),
  png: () => overviews().forEach(({ id, u }) => u && picture(u).toBlob((blob) => save(`${id}.png`, blob))),
};

/** Take up every button of the page, those to come too. */
export function start() {
  addEventListener("click", ({ target }) => {
    const button = target.closest?.("button");
    if (button?.matches(".copy")) {
      const typed = button.previousElementSibling;
      copy(button, typed.textContent, typed);
    } else if (button) ACTIONS[button.id]?.(button);
  });
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
