"""How soon the page can be used, and what it weighs on the wire.

    .venv/bin/python benchmarks/page.py [--trials 9]

A year of one GPU as retention leaves it, 30 days of runs and hours before; the web application
itself on a port, Debian's Chromium with an empty cache each time. Budgets: usable within 500 ms of
the first byte asked for, the rows and their chart drawn after 1 s; 300 KB for all of a year, half
of it without the history.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import sync_playwright

from tests.browser import past, worlds
from tests.browser.watching import bytes_by_path, site, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

USABLE_MS, DRAWN_MS, MOST_KB, MOST_OWN_KB = 500, 1000, 300, 150
WIDTH, HEIGHT = 1280, 800
DRAWN: Final = """new MutationObserver((_, watching) => {
  if (!document.querySelector("figure[data-drawn]")) return;
  watching.disconnect();
  performance.mark("drawn");
}).observe(document, {subtree: true, attributes: true, attributeFilter: ["data-drawn"]})"""
TIMES: Final = """() => {
  const [navigation] = performance.getEntriesByType("navigation");
  const [drawn] = performance.getEntriesByName("drawn");
  return [navigation.responseEnd, navigation.domContentLoadedEventEnd, drawn.startTime];
}"""


def opened(browser: Browser, url: str) -> tuple[float, float, float]:
    """Open the page anew: milliseconds until it is here, can be used, and shows a chart."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        page = context.new_page()
        # Playwright's own clock would stand in for the timings as well.
        page.add_init_script(f"Date.now = () => {1000 * past.NOW_S:.0f}; {DRAWN}")
        page.goto(f"{url}#range=1y")
        page.wait_for_function("() => performance.getEntriesByName('drawn').length > 0")
        here, usable, drawn = page.evaluate(TIMES)
        return here, usable, drawn
    finally:
        context.close()


def weighed(browser: Browser, url: str) -> dict[str, int]:
    """Draw every chart of a year; bytes on the wire by kind."""
    with watched(browser, url, past.NOW_S, viewport={"width": WIDTH, "height": HEIGHT}) as seen:
        received = bytes_by_path(seen.page)
        seen.page.goto(f"{url}#range=1y")
        seen.scroll()
        kinds = {"page": 0, "scripts and styles": 0, "history": 0, "other answers": 0}
        for path, size in received.items():
            kind = (
                "page"
                if path == "/"
                else "scripts and styles"
                if path.startswith("/static/")
                else "history"
                if path == "/api/v1/history"
                else "other answers"
            )
            kinds[kind] += size
        return kinds


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        past.Past(worlds.DEVICE, days_of_runs=30, large_every=15).write(Path(folder))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with site(worlds.regressed(), Path(folder)) as served:
            found = [opened(browser, served.url) for _ in range(chosen.trials + 1)][1:]
            here, usable, drawn = (median(times) for times in zip(*found, strict=True))
            print(f"page received        {here:7.0f} ms")
            print(f"usable               {usable:7.0f} ms   budget {USABLE_MS}")
            print(f"chart of all drawn   {drawn:7.0f} ms   budget {DRAWN_MS}")
            kinds = weighed(browser, served.url)
            for kind, size in kinds.items():
                print(f"{kind:20} {size / 1000:7.1f} KB")
            whole = sum(kinds.values())
            own = whole - kinds["history"]
            print(f"{'without history':20} {own / 1000:7.1f} KB   budget {MOST_OWN_KB}")
            print(f"{'a year, all of it':20} {whole / 1000:7.1f} KB   budget {MOST_KB}")


if __name__ == "__main__":
    main()
