// uPlot and the style of charts, which only those need who draw: fetched with the first chart.

const FOLDER = "./vendor/uPlot-1.6.32/";
let loading = null;

/** Resolves to uPlot; everything of it is there then. Errors: Error naming the file. */
export function library() {
  loading ??= Promise.all([
    element("link", { rel: "stylesheet", href: address(`${FOLDER}uPlot.min.css`) }),
    element("script", { src: address(`${FOLDER}uPlot.iife.min.js`) }),
  ]).then(() => globalThis.uPlot);
  loading.catch(() => (loading = null)); // to be tried again
  return loading;
}

/** Our own style sheet, at once: what stands around the charts is there before them. */
export function style() {
  element("link", { rel: "stylesheet", href: address("./charts.css") }).catch(() => {});
}

function element(name, properties) {
  return new Promise((loaded, failed) => {
    const made = Object.assign(document.createElement(name), properties);
    made.addEventListener("load", loaded);
    made.addEventListener("error", () => {
      made.remove();
      failed(new Error(`cannot load ${properties.href ?? properties.src}`));
    });
    document.head.append(made);
  });
}

/** With the version that this module was asked for with. */
function address(name) {
  const found = new URL(name, import.meta.url);
  found.search = new URL(import.meta.url).search;
  return found.href;
}
