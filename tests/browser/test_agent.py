"""The page of a real agent that measures with the stand-in driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.watching import watched
from tests.e2e.driven import NEW, OLD, machine

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_a_live_agent_is_drawn_and_a_new_driver_is_seen_without_a_reload(
    browser: Browser, pictures: Path
) -> None:
    with machine() as under:
        under.start()
        under.more_runs(5)
        url = f"http://127.0.0.1:{under.gpud.port}/"
        with watched(browser, url, viewport={"width": 1280, "height": 900}) as seen:
            page = seen.page
            page.goto(f"{url}#range=1h")
            figure = page.locator("figure[data-chart=history][data-probe=launch]").first
            figure.scroll_into_view_if_needed()
            figure.locator("canvas").first.wait_for()
            seen.drawn()
            name = figure.get_attribute("id")
            assert name is not None
            medians = seen.chart(name, "u.data[1].filter((one) => one > 0)")
            assert len(medians) >= 1
            assert all(5e-6 < one < 1e-3 for one in medians)
            shown = page.locator("#gpus").inner_text()
            assert OLD in shown
            under.swap(NEW)
            page.locator("#gpus", has_text=NEW).wait_for()
            assert page.locator("h1 .word").inner_text() in {"Fine", "Degraded", "Failed", "Slower"}
            seen.scroll()
            page.screenshot(path=pictures / "agent.png", full_page=True)
            assert seen.violations() == []
            seen.well()
