"""How much a page is: a year of everything, counted as the browser receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser import past, worlds
from tests.browser.serving import site
from tests.browser.watching import watched
from tests.browser.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

MOST_BYTES = 300_000


def test_a_year_of_one_minute_data_with_everything_around_it_is_small(
    browser: Browser, year: Path
) -> None:
    with (
        site(worlds.regressed(), year) as served,
        watched(browser, served.url, past.NOW_S, viewport={"width": 1280, "height": 800}) as seen,
    ):
        wire = Wire(seen.page)
        seen.page.goto(f"{served.url}#range=1y")
        seen.scroll()
        points = [
            seen.chart(figure, "u.data[0].length")
            for figure in seen.page.evaluate("Object.keys(gpud.drawn())")
            if figure.startswith("history-")
        ]
        assert len(points) >= 5
        assert min(points) > 120
        charts = wire.by_path["/api/v1/history"]
        assert 10_000 < charts < wire.total, "it was counted"
        assert wire.total < MOST_BYTES, dict(wire.by_path)
        seen.well()


def test_a_page_that_is_opened_again_asks_for_no_file_again(browser: Browser, year: Path) -> None:
    with (
        site(worlds.fine(), year) as served,
        watched(browser, served.url, past.NOW_S) as seen,
    ):
        seen.page.goto(served.url)
        seen.drawn()
        seen.page.unroute_all()  # what is intercepted is not kept by the browser
        seen.page.context.unroute_all()
        for _ in range(2):
            wire = Wire(seen.page)
            seen.page.goto("about:blank")
            seen.page.goto(served.url)
            seen.drawn()
        assert [
            path for path, size in wire.by_path.items() if "/static/" in path and size > 0
        ] == []
        assert seen.said == []
