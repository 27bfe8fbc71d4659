"""A page that stays open: it follows the machine, and says when nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import past, worlds
from tests.browser.test_charts import USUAL
from tests.browser.watching import site, watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.watching import Site, Watched

GONE = ("net::ERR_CONNECTION_REFUSED", "net::ERR_SOCKET_NOT_CONNECTED")
"""How Chromium reports that nobody listens any more, also on a connection that it has open."""


@pytest.fixture
def served(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


@pytest.fixture
def seen(browser: Browser, served: Site) -> Iterator[Watched]:
    with watched(browser, served.url, past.NOW_S) as made:
        yield made


def test_state_changes_in_front_of_the_reader_and_nothing_else_moves(
    served: Site, seen: Watched
) -> None:
    page = seen.page
    page.on("dialog", lambda dialog: seen.said.append(dialog.message))
    served.change(worlds.no_data())
    page.goto(served.url)
    assert page.locator("[data-chart]").count() == 0
    served.change(worlds.fine())  # the first figures come without a reload
    page.locator(f"#{USUAL}").scroll_into_view_if_needed()
    page.locator(f"#{USUAL} canvas").wait_for()
    seen.scroll()
    page.evaluate("globalThis.stays = true")
    summary = page.locator("#gpu-0-more summary")
    summary.click()
    summary.focus()
    canvas = page.evaluate_handle(f"document.querySelector('#{USUAL} canvas')")
    served.change(worlds.regressed())
    page.locator("h1 .word", has_text="Slower").wait_for()
    assert page.evaluate("document.documentElement.dataset.state") == "degraded"
    assert page.title().startswith("Slower")
    assert page.locator("#alerts summary").is_visible(), "what was not there is there"
    assert page.evaluate("globalThis.stays"), "nothing was loaded anew"
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.locator("#gpu-0-more").get_attribute("open") is not None
    assert canvas.evaluate("(canvas) => canvas.isConnected"), "charts stay"
    served.change(worlds.gpu_gone())
    page.locator("h1 .word", has_text="Failed").wait_for()
    page.locator(f"#{USUAL}").wait_for(state="detached")
    served.change(worlds.fine())
    page.locator("h1 .word", has_text="Fine").wait_for()
    page.wait_for_function(f"() => gpud.drawn()['{USUAL}'] !== undefined")
    assert page.locator("#view").is_visible()
    served.change(worlds.fine(worlds.HOSTILE))  # a name that is markup stays a name
    page.wait_for_function("() => document.body.innerText.includes('<img src=x onerror=alert(1)>')")
    assert page.locator("img, main script").count() == 0
    seen.well()


def test_server_that_is_gone_is_reported_and_back_by_itself(served: Site, seen: Watched) -> None:
    seen.page.goto(served.url)
    seen.drawn()
    served.stop()
    note = seen.page.locator("#unreachable")
    note.wait_for()
    assert note.inner_text().startswith("cannot reach gpud since 23:15")
    assert seen.page.evaluate("document.documentElement.hasAttribute('data-unreachable')")
    assert seen.page.locator("h1 .word").inner_text() == "Fine", "the last state is there"
    assert seen.violations() == []
    served.change(worlds.docker_loop())
    served.start()
    note.wait_for(state="hidden")
    seen.page.locator("h1 .word", has_text="Failed").wait_for()
    # That nobody listened is what the browser itself says to its console.
    assert [text for text in seen.said if not text.endswith(GONE)] == []
    assert seen.abroad == []


def test_hidden_page_asks_nothing_and_an_unchanged_page_is_not_sent_again(
    served: Site, seen: Watched
) -> None:
    seen.page.goto(served.url)
    seen.drawn()
    with seen.page.expect_response(lambda r: r.url == served.url and r.status == 304):
        pass
    hidden = "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
    seen.page.evaluate(hidden)
    asked: list[str] = []  # an answer may still be under way
    seen.page.on("request", lambda request: asked.append(request.url))
    seen.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    seen.page.wait_for_timeout(6000)
    assert asked == []
