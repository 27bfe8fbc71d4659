"""What the charts of a year show, and how a reader moves in them, with a mouse and without."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud.agent.history import queries
from tests.browser import past, worlds
from tests.browser.canvas import RECORDER, strokes, texts
from tests.browser.serving import site
from tests.browser.watching import watched
from tests.histories import DAY_S, HOUR_S, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from tests.browser.serving import Site
    from tests.browser.watching import Watched

LAUNCH, TRIAD = "history-gpu0-launch", "history-gpu0-triad"
NOW_S = past.NOW_S
USUAL = [3.0, 5.0]
"""The pattern of the line at the usual level."""
HOURS = f"""() => ((u) => (u.data[0].at(-1) - u.data[0][0]) / 3600)(gpud.drawn()["{LAUNCH}"])"""


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


def test_drivers_slowdowns_and_the_usual_level_are_named_below_a_chart(seen: Watched) -> None:
    choose(seen, "30d")
    wait(seen, "u.data[0].at(-1) - u.data[0][0] > 28 * 86400")
    words = below(seen, ".when")
    assert "driver 572.16" in words
    assert "submission latency 12 % slower (driver 566.36 → 572.16)" in words
    assert "usual 12.4 µs" in below(seen, ".modes")


def test_newest_figure_has_the_time_of_its_run_where_that_is_known(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    for figure, words in (
        (LAUNCH, "newest: 2023-11-14 23:14:40"),
        (TRIAD, "newest: 2023-11-14 23:10 to 23:15"),  # its last run was before that
    ):
        wait(seen, "u.cursor.idx === null", figure)
        assert below(seen, ".when", figure).partition(" · ")[0] == words


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


def test_mode_can_be_hidden_and_the_last_of_them_stays(seen: Watched) -> None:
    buttons = seen.page.locator(f"#{LAUNCH} .legend button")
    for number in range(3):
        buttons.nth(number).click()
    shown = [buttons.nth(number).get_attribute("aria-pressed") for number in range(3)]
    assert shown == ["false", "false", "true"]
    assert seen.chart(LAUNCH, "u.series.filter((s) => s.show && s.scale === 'y').length") == 3
    for number in range(2):
        buttons.nth(number).click()


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


def test_address_that_means_nothing_shows_the_usual_range(browser: Browser, served: Site) -> None:
    ms = f"{NOW_S * 1000 - 7200_000:.0f}&to={NOW_S * 1000:.0f}"
    windows = ("from=1&to=2", "from=1&to=1e999", "from=2&to=1", f"from={ms}", "from=x&to=y")
    with watched(browser, served.url, NOW_S) as other:
        for address in ("range=toString", *(f"range=24h&{window}" for window in windows)):
            other.page.goto("about:blank")
            other.page.goto(f"{served.url}#{address}")
            assert other.page.is_checked("input[value='24h']"), address
            assert other.page.locator("#reset").is_hidden(), address
        other.drawn()
        other.well()


@pytest.mark.parametrize(
    ("begin_h", "end_h", "words"),
    [
        (12.0, 10.0, "last in this window: 2023-11-14 1"),
        (7.9, 6.6, "no figures in this time"),  # the lid was closed
        (22.0, 0.007, "last in this window: 2023-11-14 23:0"),  # its last step goes on after it
        (200 * 24 + 2, 200 * 24 - 2, "last in this window: 2023-04-2"),  # runs are deleted by then
    ],
)
def test_window_has_figures_of_its_own_time_alone(
    browser: Browser, served: Site, begin_h: float, end_h: float, words: str
) -> None:
    begin, end = NOW_S - begin_h * HOUR_S, NOW_S - end_h * HOUR_S
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(f"{served.url}#range=24h&from={begin:.0f}&to={end:.0f}")
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        assert below(seen, ".when").startswith(words)
        seen.well()


@pytest.mark.parametrize(("minutes", "shown"), [(25, 25), (3, 10)])
def test_chart_of_a_new_user_begins_with_the_first_run_and_so_does_its_usual_level(
    browser: Browser, tmp_path: Path, minutes: int, shown: int
) -> None:
    with opened(tmp_path) as store:
        store.append([run for run in past.Past().runs() if run.finished_s > NOW_S - 60 * minutes])
        first_s = store.read(queries.first_s)
    assert first_s is not None
    fine = worlds.fine()
    assert fine.store is not None
    new = structs.replace(fine, store=structs.replace(fine.store, first_s=first_s))
    with site(new, tmp_path) as served, watched(browser, served.url, NOW_S) as seen:
        seen.page.add_init_script(RECORDER)
        seen.page.goto(served.url)
        seen.scroll()
        low, high = span(seen)
        assert high - low == pytest.approx(60 * shown, abs=60)
        left = seen.chart(LAUNCH, f"u.valToPos({first_s}, 'x') + u.bbox.left / devicePixelRatio")
        starts = [path[0][0] for path in strokes(seen.page, LAUNCH, USUAL)]
        assert starts, "the usual level is drawn"
        assert starts == pytest.approx([left] * len(starts), abs=1)
        assert "since the first run" in seen.page.inner_text("#zone")
        seen.well()


@pytest.mark.parametrize("width", [390, 1280])
def test_words_in_a_chart_lie_on_no_others(browser: Browser, served: Site, width: int) -> None:
    viewport = {"width": width, "height": 844}
    with watched(browser, served.url, NOW_S, viewport=viewport) as seen:
        seen.page.add_init_script(RECORDER)
        seen.page.goto(f"{served.url}#range=1y")
        seen.scroll()
        for figure, words in (
            (LAUNCH, "driver 566.36 → 572.16"),
            ("crossover-gpu0", "CPU 9.66"),
            ("spread-gpu0-submit", "median 13.8"),
        ):
            drawn = texts(seen.page, figure)
            assert any(text.text.startswith(words) for text in drawn), figure
            pairs = [(a, b) for place, a in enumerate(drawn) for b in drawn[:place]]
            assert [(a.text, b.text) for a, b in pairs if a.overlaps(b)] == []


@pytest.mark.parametrize(
    ("zone", "midnight", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T00:00+01:00", (0, 4, 8, 12, 16)),  # of a day with 23 hours
        ("Europe/Berlin", "2024-10-27T00:00+02:00", (0, 4, 8, 12, 16)),  # with 25
        ("Asia/Kathmandu", "2024-03-31T00:00+05:45", (0, 4, 8, 12, 16)),
        ("Europe/Berlin", "2024-03-31T00:00+00:00", (0, 1, 2, 3)),  # in UTC
    ],
)
def test_marks_of_a_day_are_on_the_hours_of_the_clock(
    browser: Browser, served: Site, zone: str, *, midnight: str, hours: tuple[int, ...]
) -> None:
    begin_s = datetime.fromisoformat(midnight).timestamp()
    look = """([figure, from, to]) => { const u = gpud.drawn()[figure];
      u.setSize({width: 420, height: 240});
      u.setScale("x", {min: from, max: to}); }"""
    with watched(browser, served.url, NOW_S, timezone_id=zone) as seen:
        seen.page.goto(f"{served.url}#range=24h&utc={int('+00:00' in midnight)}")
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        end_s = begin_s + (hours[-1] + 1.5) * HOUR_S  # one of them may come twice
        seen.page.evaluate(look, [LAUNCH, begin_s, end_s])
        wait(seen, f"u.scales.x.min === {begin_s}")
        labels = [f"00:00\n{midnight[:10]}", *(f"{hour:02}:00" for hour in hours[1:])]
        assert seen.chart(LAUNCH, "u.axes[0]._values")[: len(labels)] == labels


def test_answer_for_a_range_that_is_no_longer_looked_at_is_not_drawn(
    browser: Browser, served: Site
) -> None:
    tall = {"width": 1280, "height": 2600}
    with watched(browser, served.url, NOW_S, viewport=tall) as seen:
        page = seen.page
        page.goto(served.url)
        seen.drawn()
        held: list[Route] = []
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
        seen.well()


def test_charts_that_could_not_be_fetched_come_later(browser: Browser, served: Site) -> None:
    with watched(browser, served.url, NOW_S) as seen:
        refused: list[Any] = []

        def once(route: Route) -> None:
            if refused:
                route.fallback()
            else:
                refused.append(route.request.url)
                route.abort()

        seen.page.route("**/static/charts.js*", once)
        seen.page.goto(served.url)
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH} canvas").wait_for()
        assert len(refused) == 1
        assert [text for text in seen.said if "net::ERR_FAILED" not in text] == []
