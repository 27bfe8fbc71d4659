"""What the charts of a year show, and how a reader moves in them, with a mouse and without."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from playwright.sync_api import Route

from gpud.agent.history import queries
from tests.browser import past, worlds
from tests.browser.serving import site
from tests.browser.watching import watched
from tests.histories import DAY_S, HOUR_S, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.browser.serving import Site
    from tests.browser.watching import Watched

LAUNCH, TRIAD = "history-gpu0-launch", "history-gpu0-triad"
NOW_S = past.NOW_S
HOURS = f"""() => ((u) => (u.data[0].at(-1) - u.data[0][0]) / 3600)(gpud.drawn()["{LAUNCH}"])"""


def window(begin_h: float, end_h: float, unit_s: float = HOUR_S) -> str:
    """A part of an address: from so many hours ago to so many."""
    scale = unit_s / HOUR_S
    begin, end = (scale * (NOW_S - hours * HOUR_S) for hours in (begin_h, end_h))
    return f"from={begin:.0f}&to={end:.0f}"


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.regressed(), year) as made:
        yield made


@pytest.fixture(scope="module")
def page_of_all(browser: Browser, served: Site) -> Iterator[Watched]:
    """A page for most of these; each goes to the range that it is about."""
    with watched(browser, served.url, NOW_S, viewport={"width": 1280, "height": 2600}) as seen:
        seen.page.goto(served.url)
        seen.drawn()
        yield seen
        seen.well()


@pytest.fixture
def seen(page_of_all: Watched) -> Watched:
    if page_of_all.page.locator("#reset").is_visible():
        page_of_all.page.click("#reset")
    return choose(page_of_all, "24h")


def choose(seen: Watched, name: str) -> Watched:
    pick(seen.page, name)
    seen.drawn()
    return seen


def pick(page: Page, name: str) -> None:
    page.check(f"input[name=range][value='{name}']", force=True)


def span(seen: Watched, figure: str = LAUNCH) -> tuple[float, float]:
    low, high = seen.chart(figure, "[u.scales.x.min, u.scales.x.max]")
    return low, high


def wait(seen: Watched, what: str, figure: str = LAUNCH) -> None:
    seen.page.wait_for_function(f"(id) => ((u) => {what})(gpud.drawn()[id])", arg=figure)


def below(seen: Watched, what: str, figure: str = LAUNCH) -> str:
    return seen.page.inner_text(f"#{figure} .legend {what}")


@pytest.mark.parametrize(
    ("name", "begin_s", "end_s"),
    [
        ("24h", *(hours * HOUR_S for hours in past.HOLE_H)),
        ("1y", *(days * DAY_S for days in past.HOLE_DAYS)),
    ],
)
def test_time_without_figures_is_a_hole_that_no_line_crosses(
    seen: Watched, name: str, begin_s: float, end_s: float
) -> None:
    choose(seen, name)
    wait(seen, f"u.data[0].at(-1) - u.data[0][0] > {begin_s}")
    xs, median = seen.chart(LAUNCH, "[u.data[0], u.data[1]]")
    edge = 0.2 * (begin_s - end_s)  # a step that is wider than a chart's pixel begins before it
    begin, end = NOW_S - begin_s + edge, NOW_S - end_s - edge
    inside = [y for x, y in zip(xs, median, strict=True) if begin < x < end]
    assert inside, "the hole is marked"
    assert all(y is None for y in inside)
    assert sum(y is not None for y in median) > 50
    assert seen.chart(LAUNCH, "u.series[1]._paths.gaps.length") >= 1
    assert len(xs) <= 650, "no more points than there is room for"


def test_mouse_finds_exact_figures_and_drags_a_window_that_all_charts_take(seen: Watched) -> None:
    over = seen.page.locator(f"#{LAUNCH} .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    seen.page.mouse.move(box["x"] + box["width"] * 0.2, y)
    wait(seen, "u.cursor.idx !== null", TRIAD)
    assert below(seen, ".when").startswith("2023-11-1")
    assert below(seen, ".value >> nth=0").split(" ")[1] == "µs"
    assert below(seen, ".when", TRIAD).startswith("2023-11-1"), "the cursor is in every chart"
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * 0.4, y, steps=4)
    seen.page.mouse.up()
    wait(seen, "u.scales.x.max - u.scales.x.min < 6 * 3600")
    wait(seen, "u.scales.x.max - u.scales.x.min < 6 * 3600", TRIAD)
    assert span(seen) == span(seen, TRIAD)
    assert "from=" in seen.page.url
    font = "(one) => getComputedStyle(one).fontFamily"
    fonts = {seen.page.locator(name).evaluate(font) for name in ("#reset", "body")}
    assert len(fonts) == 1, "the way back looks like the page"
    seen.page.mouse.dblclick(box["x"] + box["width"] / 2, y)
    wait(seen, "u.scales.x.max - u.scales.x.min > 23 * 3600", TRIAD)
    assert "from=" not in seen.page.url


def test_keyboard_moves_reads_aloud_zooms_and_goes_back(seen: Watched) -> None:
    seen.page.focus(f"#{LAUNCH} .plot")
    keyboard = seen.page.keyboard
    keyboard.press("ArrowLeft")
    first = below(seen, "[aria-live=polite].spoken")
    assert "submission latency" in first
    keyboard.press("ArrowLeft")
    assert below(seen, "[aria-live=polite].spoken") != first
    before = span(seen)
    keyboard.press("+")
    wait(seen, "u.scales.x.max - u.scales.x.min < 13 * 3600", TRIAD)
    keyboard.press("-")
    keyboard.press("Escape")
    wait(seen, "u.scales.x.max - u.scales.x.min > 23 * 3600", TRIAD)
    assert span(seen) == pytest.approx(before, abs=1)
    keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.textContent") == "submission latency"


def test_choice_is_in_the_address_and_remembered(
    browser: Browser, served: Site, seen: Watched
) -> None:
    choose(seen, "7d")
    seen.page.check("#utc")
    assert "range=7d" in seen.page.url
    assert "utc=1" in seen.page.url
    assert seen.page.inner_text("#zone").count("UTC") == 1
    assert "newest: 2023-11-14 22:" in below(seen, ".when")
    wait(seen, "u.axes[0]._splits.at(-1) % 86400 === 0")  # midnight is another
    with watched(browser, served.url, NOW_S) as other:
        other.page.goto(seen.page.url)
        assert other.page.is_checked("#utc")
        assert other.page.is_checked("input[value='7d']")
    seen.page.goto(served.url)
    assert seen.page.is_checked("input[value='7d']")
    seen.page.uncheck("#utc")
    assert "Europe/Berlin (UTC+01:00)" in seen.page.inner_text("#zone")
    seen.drawn()


def test_figures_and_their_drivers_are_in_words_below_a_chart(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    for figure, words in (
        (LAUNCH, "newest: 2023-11-14 23:14:40"),
        (TRIAD, "newest: 2023-11-14 23:10 to 23:15"),  # its last run was before that
    ):
        wait(seen, "u.cursor.idx === null", figure)
        assert below(seen, ".when", figure).partition(" · ")[0] == words
    choose(seen, "30d")
    wait(seen, "u.data[0].at(-1) - u.data[0][0] > 28 * 86400")
    words = below(seen, ".when")
    assert "driver 572.16" in words
    assert "submission latency 12 % slower (driver 566.36 → 572.16)" in words
    assert "usual 12.4 µs" in below(seen, ".modes")
    buttons = seen.page.locator(f"#{LAUNCH} .legend button")
    for number in range(3):
        buttons.nth(number).click()  # the last one stays
    shown = [buttons.nth(number).get_attribute("aria-pressed") for number in range(3)]
    assert shown == ["false", "false", "true"]
    assert seen.chart(LAUNCH, "u.series.filter((s) => s.show && s.scale === 'y').length") == 3
    for number in range(2):
        buttons.nth(number).click()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (window(12.0, 10.0), "last in this window: 2023-11-14 1"),
        (window(7.9, 6.6), "no figures in this time"),  # the lid was closed
        (window(22.0, 0.007), "last in this window: 2023-11-14 23:0"),  # its last step goes on
        (window(200 * 24 + 2, 200 * 24 - 2), "last in this window: 2023-04-2"),  # runs are deleted
        (window(2, 0, unit_s=3600_000), "newest: "),
        ("from=2&to=1", "newest: "),
        ("from=1&to=1e999", "newest: "),
        ("from=x&to=y", "newest: "),
    ],
)
def test_window_in_the_address_has_figures_of_its_own_time_alone(
    browser: Browser, served: Site, address: str, words: str
) -> None:
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(f"{served.url}#range=24h&{address}")
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        assert below(seen, ".when").startswith(words)
        assert seen.page.locator("#reset").is_hidden() is words.startswith("newest")
        seen.well()


def test_chart_of_a_new_user_begins_with_the_first_run(browser: Browser, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run for run in past.Past().runs() if run.finished_s > NOW_S - 1500])
        first_s = store.read(queries.first_s)
    fine = worlds.fine()
    assert fine.store is not None
    new = structs.replace(fine, store=structs.replace(fine.store, first_s=first_s))
    with site(new, tmp_path) as served, watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(served.url)
        seen.scroll()
        low, high = span(seen)
        assert high - low == pytest.approx(1500, abs=60)
        assert "since the first run" in seen.page.inner_text("#zone")
        seen.well()


@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("Europe/Berlin", "2024-03-31T00:00+01:00"),  # of a day with 23 hours
        ("Europe/Berlin", "2024-10-27T00:00+02:00"),  # with 25
        ("Asia/Kathmandu", "2024-03-31T00:00+05:45"),
    ],
)
def test_marks_of_a_day_are_on_the_hours_of_the_clock(
    browser: Browser, served: Site, zone: str, midnight: str
) -> None:
    begin_s = datetime.fromisoformat(midnight).timestamp()
    look = """([figure, from, to]) => { const u = gpud.drawn()[figure];
      u.setSize({width: 420, height: 240});
      u.setScale("x", {min: from, max: to}); }"""
    with watched(browser, served.url, NOW_S, timezone_id=zone) as seen:
        seen.page.goto(served.url)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        seen.page.evaluate(look, [LAUNCH, begin_s, begin_s + 17.5 * HOUR_S])
        wait(seen, f"u.scales.x.min === {begin_s}")
        labels = [f"00:00\n{midnight[:10]}", "04:00", "08:00", "12:00", "16:00"]
        assert seen.chart(LAUNCH, "u.axes[0]._values")[:5] == labels


def test_answer_for_a_range_that_is_no_longer_looked_at_is_not_drawn(seen: Watched) -> None:
    page, held = seen.page, list[Route]()
    page.route("**/api/v1/events?*", lambda route: held.append(route))  # noqa: PLW0108  # it is marked
    for count, name in enumerate(("6h", "7d"), 1):
        pick(page, name)
        while len(held) < count:
            page.wait_for_timeout(50)
    with page.expect_response("**/api/v1/events?*"):
        held[0].continue_()
    page.evaluate("new Promise((go) => setTimeout(go, 300))")
    assert page.evaluate(HOURS) > 20, "the six hours were for nobody"
    held[1].continue_()
    page.unroute("**/api/v1/events?*")
    seen.drawn()
    assert page.evaluate(HOURS) > 6 * 24


def test_charts_come_though_a_script_was_refused_and_an_answer_never_came(
    browser: Browser, served: Site
) -> None:
    """A network that is another after the lid was opened neither answers nor refuses."""
    with watched(browser, served.url) as seen:
        refused, held = list[str](), list[Route]()
        seen.page.add_init_script(
            "const own = AbortSignal.timeout.bind(AbortSignal);"
            "AbortSignal.timeout = (ms) => own(ms / 30);"
        )

        def once(route: Route) -> None:
            refused.append(route.request.url)
            (route.abort if len(refused) == 1 else route.fallback)()

        def hold(route: Route) -> None:
            held.append(route)
            if len(held) > 4:
                route.fallback()

        seen.page.route("**/static/charts.js*", once)
        seen.page.route("**/api/v1/history?*", hold)
        seen.page.goto(served.url)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH}[data-drawn]").wait_for(timeout=60_000)
        assert len(refused) == 2
        assert len(held) > 4
