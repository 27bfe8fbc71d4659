"""Every state of the machine in a real browser: nothing is complained of, nothing sticks out.

A page that stays open follows the machine, and says when nobody answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser import past, worlds
from tests.browser.watching import bytes_by_path, site, watched
from tests.e2e.driven import NEW, OLD, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.watching import Site, Watched

    Keep = Callable[[Page, str], None]

MOST_BYTES, MOST_WITHOUT_HISTORY, MOST_HEADS = 300_000, 150_000, 15_000
SIZES = {"phone": (320, 640), "desktop": (1280, 800), "4k": (3840, 2160)}
SCREENS = (("light", "desktop"), ("dark", "phone"))
MATRIX = [(state, *SCREENS[number % 2]) for number, state in enumerate(worlds.NAMES)]
"""Each state once, each scheme and each size with half of the states."""


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


@pytest.mark.parametrize(
    ("state", "scheme", "size"), [*MATRIX, ("regressed", "dark", "phone"), ("fine", "light", "4k")]
)
def test_page_is_clean_in_every_state_on_every_screen(
    browser: Browser, served: Site, keep: Keep, *, state: str, scheme: str, size: str
) -> None:
    served.change(worlds.snapshot(state))
    width, height = SIZES[size]
    with watched(
        browser,
        served.url,
        served.now.wall_s,
        viewport={"width": width, "height": height},
        color_scheme=scheme,
    ) as seen:
        seen.page.goto(served.url)
        seen.scroll()
        assert seen.page.locator("h1 .word").inner_text().strip() == worlds.WORDS[state]
        assert seen.too_wide() <= 0
        if size == "desktop":
            for table in seen.page.locator(":is(#gpus, #figures) .scroll").all():
                assert table.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0
        keep(seen.page, f"{state}-{scheme}-{size}")
        if size != "4k":  # what is named and how it contrasts is the same there
            assert seen.violations() == []
        seen.well()


def test_how_much_slower_work_is_can_be_read_on_a_phone_without_scrolling(
    browser: Browser, served: Site
) -> None:
    served.change(worlds.snapshot("regressed"))
    with watched(browser, served.url, viewport={"width": 390, "height": 844}) as seen:
        seen.page.goto(served.url)
        row = seen.page.locator("#speed-gpu0 tbody tr").first
        cells = [cell for cell in row.locator("th, td").all() if cell.is_visible()]
        words = [cell.inner_text() for cell in cells]
        assert words == ["submission latency", "13.9 µs", "+12 %", ""]
        boxes = [cell.bounding_box() for cell in cells]
        assert all(box and box["x"] + box["width"] <= 390 and box["y"] < 844 for box in boxes)
        line = seen.page.locator("#speed-gpu0 .spark .slow").first
        line.wait_for(state="attached")
        for _ in range(3):
            seen.page.keyboard.press("Tab")
        room = seen.page.evaluate(
            """() => {
              const here = document.activeElement, style = getComputedStyle(here);
              const box = here.getBoundingClientRect();
              const nav = here.closest("nav").getBoundingClientRect();
              const ring = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
              return Math.min(box.left - nav.left, box.top - nav.top, nav.right - box.right,
                              nav.bottom - box.bottom) - ring;
            }"""
        )
        assert room >= 0, "the menu shows its focus ring whole"


def test_one_screen_says_what_is_wrong_since_when_and_what_to_do(
    browser: Browser, year: Path
) -> None:
    with (
        site(worlds.snapshot("regressed"), year) as served,
        watched(browser, served.url, past.NOW_S, viewport={"width": 1440, "height": 900}) as seen,
    ):
        page = seen.page
        page.goto(served.url)
        seen.drawn()
        for box in ("#state", "#speed-gpu0", "#usual-gpu0 .plot"):
            place = page.locator(box).bounding_box()
            assert place is not None
            assert place["y"] + place["height"] <= 900, box
        sentence = "ubmission latency +12 % (12.4 -> 13.9 µs) since driver 566.36 -> 572.16"
        assert page.inner_text("body").count(sentence) == 1
        assert page.inner_text("body").count("go back to driver 566.36") == 1
        assert 0 < page.locator("nav a").count() <= 5
        printed = page.pdf(format="A4")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
        served.change(worlds.snapshot("fine"))
        page.goto(served.url)
        seen.drawn()
        assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 900
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 2
        seen.well()


def test_every_time_in_a_sentence_is_in_the_zone_of_the_times_beside_it(
    browser: Browser, served: Site
) -> None:
    served.change(worlds.snapshot("gpu_gone"))
    with watched(browser, served.url, served.now.wall_s) as seen:
        seen.page.goto(served.url)
        for box in ("#state", "#alerts", "#health", "#gpus"):
            if seen.page.locator(box).count():
                assert "UTC" not in seen.page.inner_text(box), box
        why = seen.page.inner_text("#state .why")
        assert "since 2023-11-14 23:14" in why
        seen.well()


@pytest.mark.parametrize("state", ["regressed", "no_data"])
def test_without_scripts_the_state_and_the_figures_are_there(
    browser: Browser, served: Site, state: str
) -> None:
    served.change(worlds.snapshot(state))
    with watched(browser, served.url, java_script_enabled=False) as seen:
        seen.page.goto(served.url)
        assert seen.page.locator("h1 .word").inner_text().strip() == worlds.WORDS[state]
        assert seen.page.locator("#view").is_hidden()
        if state == "regressed":
            assert "12.4 µs" in seen.page.inner_text("#speed-gpu0")
        seen.well()


def test_a_year_of_one_minute_data_is_small_and_no_file_of_it_is_sent_twice(
    browser: Browser, served: Site
) -> None:
    served.change(worlds.regressed())
    with watched(browser, served.url, past.NOW_S, viewport={"width": 1280, "height": 800}) as seen:
        received = bytes_by_path(seen.page)
        seen.page.goto(f"{served.url}#range=1y")
        seen.scroll()
        figures = seen.page.evaluate("Object.keys(gpud.drawn())")
        assert seen.chart("usual-gpu0", "u.data[0].length") > 120
        assert "usual-gpu0" in figures
        history = received["/api/v1/history"]
        assert 10_000 < history < sum(received.values()) < MOST_BYTES
        assert sum(received.values()) - history < MOST_WITHOUT_HISTORY
        seen.page.unroute_all()  # what is intercepted is not stored by the browser
        seen.page.context.unroute_all()
        for _ in range(2):
            received.clear()
            seen.page.goto("about:blank")
            seen.page.goto(served.url)
            seen.drawn()
        assert sum(size for path, size in received.items() if "/static/" in path) < MOST_HEADS
        assert seen.said == []


# --- a page that stays open ---

SPEED = "usual-gpu0"
GONE = ("net::ERR_CONNECTION_REFUSED", "net::ERR_SOCKET_NOT_CONNECTED")
"""How Chromium reports that nobody listens any more, also on a connection that it has open."""


@pytest.fixture
def followed(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


@pytest.fixture
def seen(browser: Browser, followed: Site) -> Iterator[Watched]:
    with watched(browser, followed.url, past.NOW_S) as made:
        yield made


def test_state_changes_in_front_of_the_reader_and_nothing_else_moves(
    followed: Site, seen: Watched
) -> None:
    page = seen.page
    page.on("dialog", lambda dialog: seen.said.append(dialog.message))
    followed.change(worlds.no_data())
    page.goto(followed.url)
    assert page.locator("[data-chart]").count() == 0
    followed.change(worlds.fine())  # the first figures come without a reload
    page.locator(f"#{SPEED}").scroll_into_view_if_needed()
    page.locator(f"#{SPEED} canvas").wait_for()
    seen.scroll()
    page.evaluate("globalThis.stays = true")
    summary = page.locator("#gpu-0-more summary")
    summary.click()
    summary.focus()
    canvas = page.evaluate_handle(f"document.querySelector('#{SPEED} canvas')")
    followed.change(worlds.regressed())
    page.locator("h1 .word", has_text="Slower").wait_for()
    assert page.evaluate("document.documentElement.dataset.state") == "degraded"
    assert page.title().startswith("Slower")
    assert page.locator("#alerts summary").is_visible(), "what was not there is there"
    assert page.evaluate("globalThis.stays"), "nothing was loaded anew"
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.locator("#gpu-0-more").get_attribute("open") is not None
    assert canvas.evaluate("(canvas) => canvas.isConnected"), "charts stay"
    followed.change(worlds.gpu_gone())
    page.locator("h1 .word", has_text="Failed").wait_for()
    page.locator(f"#{SPEED}").wait_for(state="detached")
    followed.change(worlds.fine())
    page.locator("h1 .word", has_text="Fine").wait_for()
    page.wait_for_function(f"() => gpud.drawn()['{SPEED}'] !== undefined")
    assert page.locator("#view").is_visible()
    followed.change(worlds.fine(worlds.HOSTILE))  # a name that is markup stays a name
    page.wait_for_function("() => document.body.innerText.includes('<img src=x onerror=alert(1)>')")
    assert page.locator("img, main script").count() == 0
    seen.well()


def test_server_that_is_gone_is_reported_and_back_by_itself(followed: Site, seen: Watched) -> None:
    seen.page.goto(followed.url)
    seen.drawn()
    followed.stop()
    note = seen.page.locator("#unreachable")
    note.wait_for()
    assert note.inner_text().startswith("cannot reach gpud since 23:15")
    assert seen.page.evaluate("document.documentElement.hasAttribute('data-unreachable')")
    assert seen.page.locator("h1 .word").inner_text() == "Fine", "the last state is there"
    assert seen.violations() == []
    followed.change(worlds.docker_loop())
    followed.start()
    note.wait_for(state="hidden")
    seen.page.locator("h1 .word", has_text="Failed").wait_for()
    # That nobody listened is what the browser itself says to its console.
    assert [text for text in seen.said if not text.endswith(GONE)] == []
    assert seen.abroad == []


def test_hidden_page_asks_nothing_and_an_unchanged_page_is_not_sent_again(
    followed: Site, seen: Watched
) -> None:
    seen.page.goto(followed.url)
    seen.drawn()
    with seen.page.expect_response(lambda r: r.url == followed.url and r.status == 304):
        pass
    hidden = "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
    seen.page.evaluate(hidden)
    asked: list[str] = []  # an answer may still be under way
    seen.page.on("request", lambda request: asked.append(request.url))
    seen.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    seen.page.wait_for_timeout(6000)
    assert asked == []


def test_live_agent_is_drawn_and_a_new_driver_is_seen_without_a_reload(
    browser: Browser, keep: Keep
) -> None:
    with machine() as driven:
        driven.start()
        driven.more_runs(5)
        url = f"http://127.0.0.1:{driven.gpud.port}/"
        with watched(browser, url, viewport={"width": 1280, "height": 900}) as seen:
            page = seen.page
            page.goto(f"{url}#range=1h")
            page.locator("#charts").evaluate("(fold) => { fold.open = true; }")
            figure = page.locator("figure[data-probe=launch][data-mode=submit]").first
            figure.scroll_into_view_if_needed()
            figure.locator("canvas").first.wait_for()
            seen.drawn()
            name = str(figure.get_attribute("id"))
            medians = seen.chart(name, "u.data[1].filter((value) => value > 0)")
            assert len(medians) >= 1
            assert all(5e-6 < median < 1e-3 for median in medians)
            assert OLD in page.locator("#gpus").inner_text()
            driven.swap(NEW)
            page.locator("#gpus", has_text=NEW).wait_for()
            seen.scroll()
            keep(page, "agent")
            assert seen.violations() == []
            seen.well()
