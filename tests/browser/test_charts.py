"""What the charts of a year show, and how one moves in them, with a mouse and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import past, worlds
from tests.browser.serving import site
from tests.browser.watching import watched
from tests.histories import DAY_S, HOUR_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Route

    from tests.browser.serving import Site
    from tests.browser.watching import Watched

LAUNCH, TRIAD = "history-gpu0-launch", "history-gpu0-triad"
NOW_S = past.NOW_S


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.regressed(), year) as made:
        yield made


@pytest.fixture(scope="module")
def opened(browser: Browser, served: Site) -> Iterator[Watched]:
    """A page for all of these; each goes to the range that it is about."""
    with watched(browser, served.url, NOW_S, viewport={"width": 1280, "height": 1400}) as seen:
        seen.page.goto(served.url)
        seen.drawn()
        yield seen
        seen.well()


@pytest.fixture
def seen(opened: Watched) -> Watched:
    if opened.page.locator("#reset").is_visible():
        opened.page.click("#reset")
    return choose(opened, "24h")


def choose(seen: Watched, name: str) -> Watched:
    seen.page.check(f"input[name=range][value='{name}']", force=True)
    seen.drawn()
    return seen


def span(seen: Watched, figure: str = LAUNCH) -> tuple[float, float]:
    low, high = seen.chart(figure, "[u.scales.x.min, u.scales.x.max]")
    return low, high


def wait(seen: Watched, what: str, figure: str = LAUNCH) -> None:
    seen.page.wait_for_function(f"(id) => ((u) => {what})(gpud.drawn()[id])", arg=figure)


def focus(seen: Watched, figure: str = LAUNCH) -> Any:
    seen.page.focus(f"#{figure} .plot")
    return seen.page.keyboard


def test_a_closed_lid_is_a_hole_and_no_line_crosses_it(seen: Watched) -> None:
    xs, median = seen.chart(LAUNCH, "[u.data[0], u.data[1]]")
    begin, end = (NOW_S - hours * HOUR_S for hours in past.HOLE_H)
    inside = [(x, y) for x, y in zip(xs, median, strict=True) if begin + 900 < x < end - 900]
    assert inside, "the hole is marked"
    assert all(y is None for _, y in inside)
    before = [y for x, y in zip(xs, median, strict=True) if x < begin - 900]
    assert sum(y is not None for y in before) > 50
    gaps = seen.chart(LAUNCH, "u.series[1]._paths.gaps.length")
    assert gaps >= 1


def test_a_year_has_a_week_without_figures_as_a_hole(seen: Watched) -> None:
    choose(seen, "1y")
    wait(seen, "u.data[0].at(-1) - u.data[0][0] > 300 * 86400")
    xs, median = seen.chart(LAUNCH, "[u.data[0], u.data[1]]")
    begin, end = (NOW_S - days * DAY_S for days in past.HOLE_DAYS)
    holes = [x for x, y in zip(xs, median, strict=True) if y is None]
    assert [x for x in holes if begin < x < end]
    assert len(xs) <= 650, "no more points than there is room for"


def test_other_drivers_and_what_they_cost_are_told_beside_the_figures(seen: Watched) -> None:
    choose(seen, "30d")
    wait(seen, "u.data[0].at(-1) - u.data[0][0] > 28 * 86400")
    words = seen.page.inner_text(f"#{LAUNCH} .legend .when")
    assert "driver 572.16" in words
    assert "submission latency 12 % slower (driver 566.36 → 572.16)" in words
    assert "usual 12.4 µs" in seen.page.inner_text(f"#{LAUNCH} .legend .modes")


def test_the_newest_figure_has_the_time_of_its_run_where_that_is_known(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    for figure, told in (
        (LAUNCH, "newest: 2023-11-14 23:14:40"),
        (TRIAD, "newest: 2023-11-14 23:10 to 23:15"),  # its last run was before that
    ):
        wait(seen, "u.cursor.idx === null", figure)
        when = seen.page.inner_text(f"#{figure} .legend .when")
        assert when.partition(" · ")[0] == told


def test_the_mouse_finds_exact_figures_and_drags_a_window_that_all_charts_take(
    seen: Watched,
) -> None:
    over = seen.page.locator(f"#{LAUNCH} .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    seen.page.mouse.move(box["x"] + box["width"] * 0.2, y)
    wait(seen, "u.cursor.idx !== null", TRIAD)
    when = seen.page.inner_text(f"#{LAUNCH} .legend .when")
    assert when.startswith("2023-11-1")
    value = seen.page.inner_text(f"#{LAUNCH} .legend .value >> nth=0")
    assert value.split(" ")[1] == "µs"
    assert "run" in value
    other = seen.page.inner_text(f"#{TRIAD} .legend .when")
    assert other.startswith("2023-11-1"), "the cursor is in every chart"
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * 0.4, y, steps=4)
    seen.page.mouse.up()
    wait(seen, "u.scales.x.max - u.scales.x.min < 6 * 3600")
    wait(seen, "u.scales.x.max - u.scales.x.min < 6 * 3600", TRIAD)
    assert span(seen) == span(seen, TRIAD)
    assert "from=" in seen.page.url
    seen.page.mouse.dblclick(box["x"] + box["width"] / 2, y)
    wait(seen, "u.scales.x.max - u.scales.x.min > 23 * 3600", TRIAD)
    assert "from=" not in seen.page.url


def test_a_window_in_an_old_time_shows_hours_where_runs_are_deleted(seen: Watched) -> None:
    old = NOW_S - 200 * DAY_S
    seen.page.evaluate(f"location.hash = 'range=24h&from={old - 7200:.0f}&to={old + 7200:.0f}'")
    wait(seen, "u.scales.x.max - u.scales.x.min < 5 * 3600")
    wait(seen, "u.data[1].some((one) => one > 0)")


def test_an_address_that_means_nothing_shows_what_is_usual(browser: Browser, served: Site) -> None:
    ms = f"{NOW_S * 1000 - 7200_000:.0f}&to={NOW_S * 1000:.0f}"
    windows = ("from=1&to=2", "from=1&to=1e999", "from=2&to=1", f"from={ms}", "from=x&to=y")
    with watched(browser, served.url, NOW_S) as other:
        for said in ("range=toString", *(f"range=24h&{one}" for one in windows)):
            other.page.goto("about:blank")
            other.page.goto(f"{served.url}#{said}")
            assert other.page.is_checked("input[value='24h']"), said
            assert other.page.locator("#reset").is_hidden(), said
        other.drawn()
        other.well()


def test_the_keyboard_moves_reads_aloud_zooms_and_goes_back(seen: Watched) -> None:
    keyboard = focus(seen)
    keyboard.press("End")
    spoken = seen.page.locator(f"#{LAUNCH} [aria-live=polite].spoken")
    first = spoken.inner_text()
    assert "submission latency" in first
    keyboard.press("ArrowLeft")
    assert spoken.inner_text() != first
    before = span(seen)
    keyboard.press("+")
    wait(seen, "u.scales.x.max - u.scales.x.min < 13 * 3600", TRIAD)
    keyboard.press("-")
    keyboard.press("Escape")
    wait(seen, "u.scales.x.max - u.scales.x.min > 23 * 3600", TRIAD)
    assert span(seen) == pytest.approx(before, abs=1)
    keyboard.press("Tab")
    name = seen.page.evaluate("document.activeElement.textContent")
    assert name == "submission latency", "and the keyboard is no prisoner"


def test_a_mode_can_be_put_away_and_the_last_one_stays(seen: Watched) -> None:
    buttons = seen.page.locator(f"#{LAUNCH} .legend button")
    for number in range(3):
        buttons.nth(number).click()
    shown = [buttons.nth(number).get_attribute("aria-pressed") for number in range(3)]
    assert shown == ["false", "false", "true"]
    assert seen.chart(LAUNCH, "u.series.filter((one) => one.show && one.scale === 'y').length") == 3
    for number in range(2):
        buttons.nth(number).click()


def test_what_is_chosen_is_kept_and_can_be_sent(
    browser: Browser, served: Site, seen: Watched
) -> None:
    choose(seen, "7d")
    seen.page.check("#utc")
    assert "range=7d" in seen.page.url
    assert "utc=1" in seen.page.url
    assert "times in UTC" in seen.page.inner_text("#zone")
    assert "newest: 2023-11-14 22:" in seen.page.inner_text(f"#{LAUNCH} .legend .when")
    with watched(browser, served.url, NOW_S) as other:
        other.page.goto(seen.page.url)
        assert other.page.is_checked("#utc")
        assert other.page.is_checked("input[value='7d']")
    seen.page.goto(served.url)
    assert seen.page.is_checked("input[value='7d']")
    seen.page.uncheck("#utc")
    assert "Europe/Berlin (UTC+01:00)" in seen.page.inner_text("#zone")
    seen.drawn()


@pytest.mark.parametrize(
    ("zone", "hours", "labels"),
    [
        # In Berlin 02:00 is 03:00 that night: nine hours of the clock are eight of time.
        ("Europe/Berlin", [0, 2, 5, 8], ["00:00\n2024-03-31", "03:00", "06:00", "09:00"]),
        ("America/New_York", [0, 3, 6, 9], ["19:00\n2024-03-30", "22:00", "01:00\n03-31", "04:00"]),
        ("Asia/Kathmandu", [0, 3, 6, 9], ["04:45\n2024-03-31", "07:45", "10:45", "13:45"]),
    ],
)
def test_the_axis_of_time_is_right_in_the_night_the_clock_is_changed(
    browser: Browser, served: Site, zone: str, hours: list[int], labels: list[str]
) -> None:
    with watched(browser, served.url, NOW_S, timezone_id=zone) as seen:
        seen.page.goto(served.url)
        ask = """async ([from, times]) => {
          const time = await import(document.querySelector("script[type=module]").src
            .replace("main.js", "time.js"));
          return time.tickLabels(times.map((one) => from + one), 3 * 3600);
        }"""
        midnight_s = 1711839600  # of 2024-03-31 in Berlin
        assert seen.page.evaluate(ask, [midnight_s, [3600 * one for one in hours]]) == labels


def test_the_marks_of_a_short_and_a_long_day_are_on_the_hours_of_the_clock(
    browser: Browser, served: Site
) -> None:
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(served.url)
        ask = """async ([from, to, step]) => {
          const time = await import(document.querySelector("script[type=module]").src
            .replace("main.js", "time.js"));
          return time.ticks(from, to, step).map((one) => time.clock(one));
        }"""
        spring, autumn = 1711839600, 1729980000  # midnights in Berlin
        assert seen.page.evaluate(ask, [spring, spring + 23 * 3600, 6 * 3600]) == [
            *("00:00", "06:00", "12:00", "18:00", "00:00")
        ]
        assert seen.page.evaluate(ask, [autumn, autumn + 25 * 3600, 6 * 3600]) == [
            *("00:00", "06:00", "12:00", "18:00", "00:00")
        ]
        assert seen.page.evaluate(ask, [spring, spring + 60 * 86400, 30 * 86400])[0] == "00:00"


@pytest.mark.parametrize(("width", "height"), [(1280, 240), (390, 200)])
def test_a_chart_has_its_room_before_its_style_and_its_figures_come(
    browser: Browser, served: Site, width: int, height: int
) -> None:
    room = f"document.querySelector('#{LAUNCH} .plot').getBoundingClientRect().height"
    with watched(browser, served.url, NOW_S, viewport={"width": width, "height": 900}) as seen:
        held: list[Route] = []
        seen.page.route("**/charts.css*", lambda one: held.append(one))  # noqa: PLW0108  # it is marked
        seen.page.goto(served.url, wait_until="domcontentloaded")
        seen.page.locator("html.js").wait_for()
        before = seen.page.evaluate(room)
        while not held:
            seen.page.wait_for_timeout(50)
        held[0].continue_()
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.page.locator(f"#{LAUNCH} canvas").wait_for()
        assert before == seen.page.evaluate(room) == height
        seen.well()
