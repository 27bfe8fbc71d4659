"""A page that stays open: what it says follows the machine, and it says when nobody answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.browser import past, worlds
from tests.browser.serving import site
from tests.browser.watching import watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Route

    from tests.browser.serving import Site

LAUNCH = "history-gpu0-launch"
GONE = ("net::ERR_CONNECTION_REFUSED", "net::ERR_SOCKET_NOT_CONNECTED")
"""How Chromium reports that nobody listens any more, also on a connection that it has kept."""


@pytest.fixture
def served(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


def test_the_state_changes_in_front_of_the_reader_and_nothing_else_moves(
    browser: Browser, served: Site
) -> None:
    with watched(browser, served.url, past.NOW_S) as seen:
        page = seen.page
        page.goto(served.url)
        seen.scroll()
        page.evaluate("globalThis.stays = true")
        summary = page.locator("#spread-gpu0-submit-counts summary")
        summary.click()
        summary.focus()
        page.evaluate("document.querySelector('#health .scroll').dataset.mine = '1'")
        canvas = page.evaluate_handle(f"document.querySelector('#{LAUNCH} canvas')")
        served.snapshot = worlds.regressed()
        served.tick(5)
        page.locator("h1 .word", has_text="Slower").wait_for()
        assert page.evaluate("document.documentElement.dataset.state") != "ok"
        assert page.title().startswith("Slower")
        assert page.locator("#alerts").is_visible(), "a section that was not there is there"
        assert page.evaluate("globalThis.stays"), "nothing was loaded anew"
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert page.locator("#spread-gpu0-submit-counts").get_attribute("open") is not None
        assert canvas.evaluate("(one) => one.isConnected"), "charts stay"
        served.snapshot = worlds.gpu_gone()
        served.tick(5)
        page.locator("h1 .word", has_text="Failed").wait_for()
        page.locator(f"#{LAUNCH}").wait_for(state="detached")
        served.snapshot = worlds.fine()
        served.tick(5)
        page.locator("h1 .word", has_text="Fine").wait_for()
        page.wait_for_function(f"() => gpud.drawn()['{LAUNCH}'] !== undefined")
        assert page.locator("#view").is_visible()
        seen.well()


def test_from_no_data_to_the_first_figures_without_a_reload(browser: Browser, served: Site) -> None:
    served.snapshot = worlds.no_data()
    with watched(browser, served.url, past.NOW_S) as seen:
        seen.page.goto(served.url)
        assert seen.page.locator("figure[data-chart]").count() == 0
        served.snapshot = worlds.fine()
        served.tick(5)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH} canvas").wait_for()
        seen.drawn()
        seen.well()


def test_a_server_that_is_gone_is_said_to_be_and_back_by_itself(
    browser: Browser, served: Site
) -> None:
    with watched(browser, served.url, past.NOW_S) as seen:
        seen.page.goto(served.url)
        seen.drawn()
        served.stop()
        told = seen.page.locator("#unreachable")
        told.wait_for()
        assert told.inner_text().startswith("cannot reach gpud since 23:15")
        assert seen.page.evaluate("document.documentElement.hasAttribute('data-unreachable')")
        assert seen.page.locator("h1 .word").inner_text() == "Fine", "what was known is there"
        assert seen.violations() == []
        served.snapshot = worlds.docker_loop()
        served.tick(5)
        served.start()
        told.wait_for(state="hidden")
        seen.page.locator("h1 .word", has_text="Failed").wait_for()
        # That nobody listened is what the browser itself says to its console.
        assert {one for one in seen.said if not one.endswith(GONE)} == set()
        assert seen.abroad == []


def test_who_does_not_answer_is_not_waited_for(browser: Browser, served: Site) -> None:
    """A network that is another after the lid was opened neither answers nor refuses."""
    with watched(browser, served.url) as seen:
        seen.page.add_init_script(
            "const own = AbortSignal.timeout.bind(AbortSignal);"
            "AbortSignal.timeout = (ms) => own(ms / 30);"
        )
        held: list[object] = []

        def hold(asked: Route) -> None:
            if len(held) < 4:
                held.append(asked)
            else:
                asked.fallback()

        seen.page.route("**/api/v1/history?*", hold)
        seen.page.goto(served.url)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH}[data-drawn]").wait_for(timeout=60_000)
        assert len(held) == 4


def test_a_hostile_name_stays_a_name(browser: Browser, served: Site) -> None:
    served.snapshot = worlds.fine(worlds.HOSTILE)
    served.tick(2)
    with watched(browser, served.url, past.NOW_S) as seen:
        seen.page.on("dialog", lambda one: seen.said.append(one.message))
        seen.page.goto(served.url)
        seen.scroll()
        before = served.now.wall_s
        served.snapshot = worlds.no_nvml()
        served.tick(5)
        seen.page.locator("h1 .word", has_text="Failed").wait_for()
        served.snapshot = worlds.fine(worlds.HOSTILE)
        served.tick(5)
        seen.page.locator("h1 .word", has_text="Fine").wait_for()
        assert served.now.wall_s > before
        assert "<img src=x onerror=alert(1)>" in seen.page.inner_text("main")
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("main script").count() == 0
        seen.well()


def test_nobody_asks_while_nobody_looks_and_what_is_unchanged_is_not_sent_again(
    browser: Browser, served: Site
) -> None:
    with watched(browser, served.url, past.NOW_S) as seen:
        codes: list[int] = []
        seen.page.on(
            "response", lambda one: codes.append(one.status) if one.url == served.url else None
        )
        seen.page.goto(served.url)
        seen.drawn()
        deadline = time.monotonic() + 30
        while codes.count(304) < 1 and time.monotonic() < deadline:
            seen.page.wait_for_timeout(200)
        assert codes[0] == 200
        assert 304 in codes
        seen.page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
        )
        asked: list[str] = []  # an answer may still be under way
        seen.page.on("request", lambda one: asked.append(one.url))
        seen.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        seen.page.wait_for_timeout(6000)
        assert asked == []
