"""What the charts of a year show, and how a reader moves in them, with a mouse and without."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from playwright.sync_api import Route

from gpud.agent.history import queries
from tests.browser import past, worlds
from tests.browser.watching import site, watched
from tests.histories import DAY_S, HOUR_S, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.browser.watching import Site, Watched

LAUNCH, TRIAD = "history-gpu0-launch-submit", "history-gpu0-triad-triad"
USUAL = "usual-gpu0"
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
        unfold(seen)
        yield seen
        seen.well()


@pytest.fixture
def seen(page_of_all: Watched) -> Watched:
    if page_of_all.page.locator("#reset").is_visible():
        page_of_all.page.click("#reset")
    return choose(page_of_all, "24h")


def unfold(seen: Watched) -> None:
    """Open the charts of single metrics, and wait until those in sight are drawn."""
    seen.page.evaluate("document.getElementById('charts').open = true")
    seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
    seen.drawn()


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
    assert below(seen, ".modes").split(" ")[1] == "µs"
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
    seen.page.goto(f"{seen.page.url.partition('#')[0]}#range=24h&{window(8, 6)}")
    wait(seen, "u.scales.x.max - u.scales.x.min < 3 * 3600", TRIAD)
    keyboard.press("Escape")
    wait(seen, "u.scales.x.max - u.scales.x.min > 23 * 3600", TRIAD)
    assert span(seen) == pytest.approx(before, abs=1)


def test_choice_is_in_the_address_and_remembered(
    browser: Browser, served: Site, seen: Watched
) -> None:
    choose(seen, "7d")
    assert "range=7d" in seen.page.url
    assert seen.page.inner_text("#zone") == "times in Europe/Berlin (UTC+01:00)"
    with watched(browser, served.url, NOW_S) as other:
        other.page.goto(seen.page.url)
        assert other.page.is_checked("input[value='7d']")
    seen.page.goto(served.url)
    assert seen.page.is_checked("input[value='30d']"), "what is slower is shown from before it was"
    served.change(worlds.fine())
    seen.page.goto(served.url)
    assert seen.page.is_checked("input[value='7d']")
    served.change(worlds.regressed())
    seen.page.goto(f"{served.url}?again")
    unfold(seen)


def test_figures_and_their_drivers_are_in_words_below_a_chart(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    for figure, words in (
        (LAUNCH, "newest: 2023-11-14 23:10 (5 min)"),
        (TRIAD, "newest: 2023-11-14 23:10 (5 min)"),
    ):
        wait(seen, "u.cursor.idx === null", figure)
        assert below(seen, ".when", figure).partition(" · ")[0] == words
    choose(seen, "30d")
    wait(seen, "u.data[0].at(-1) - u.data[0][0] > 28 * 86400")
    words = below(seen, ".when")
    assert "driver 572.16" in words
    assert "submission latency 12 % slower (driver 566.36 → 572.16)" in words
    assert "usual 12.4 µs" in below(seen, ".modes")


ADDRESSES = (
    (window(12.0, 10.0), "last in this window: 2023-11-14 1"),
    (window(7.9, 6.6), "no figures in this time"),  # the lid was closed
    (window(22.0, 0.007), "last in this window: 2023-11-14 23:0"),  # its last step goes on
    (window(200 * 24 + 2, 200 * 24 - 2), "last in this window: 2023-04-2"),  # runs are deleted
    (window(2, 0, unit_s=3600_000), "newest: "),
    ("from=1&to=1e999", "newest: "),
)


def test_window_in_the_address_has_figures_of_its_own_time_alone(seen: Watched) -> None:
    for address, words in ADDRESSES:
        seen.page.evaluate(f"location.hash = 'range=24h&{address}'")
        seen.page.wait_for_function(
            "([id, words]) => document.querySelector(`#${id} .when`).textContent.startsWith(words)",
            arg=[LAUNCH, words],
        )
        assert seen.page.locator("#reset").is_hidden() is words.startswith("newest")


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
        low, high = span(seen, USUAL)
        assert high - low == pytest.approx(1500, abs=60)
        assert "since the first run" in seen.page.inner_text("#zone")
        seen.well()


def test_answer_for_a_range_that_is_no_longer_looked_at_is_not_drawn(seen: Watched) -> None:
    page, held = seen.page, list[Route]()
    page.route("**/api/v1/events?*", lambda route: held.append(route))  # noqa: PLW0108  # it is marked
    for count, name in enumerate(("6h", "90d"), 1):
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


def test_a_step_of_twelve_percent_is_a_seventh_of_the_height_of_every_chart(
    browser: Browser, served: Site
) -> None:
    with watched(browser, served.url, NOW_S, viewport={"width": 1280, "height": 900}) as seen:
        seen.page.goto(served.url)
        seen.drawn()
        low, high = seen.chart(USUAL, "[u.scales.y.min, u.scales.y.max]")
        assert low < 100
        assert high > 112
        assert 12 / (high - low) >= LEAST_STEP
        label = f"submission latency {past.SLOWER - 1:.0%} slower".replace("%", " %")
        assert label in seen.written(USUAL)
        heights = seen.page.locator("#speed-gpu0 tbody tr").first.evaluate(STEP)
        assert abs(heights) >= LEAST_STEP
        unfold(seen)
        level, low, high = seen.chart(LAUNCH, "[12.4e-6, u.scales.y.min, u.scales.y.max]")
        assert (past.SLOWER - 1) * level / (high - low) >= LEAST_STEP
        seen.well()


LEAST_STEP = 0.15
STEP = """(row) => {
  const y = (path) => path.getAttribute("d").match(/[\\d.]+ [\\d.]+/g).map((p) => +p.split(" ")[1]);
  const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const [usual] = y(row.querySelector(".usual"));
  const height = row.querySelector("svg").viewBox.baseVal.height;
  return (usual - middle(y(row.querySelector(".slow")))) / height;
}"""


def test_row_that_is_pointed_at_has_its_line_before_the_others(seen: Watched) -> None:
    strokes = "u.series.slice(1).map((s) => s.stroke())"
    before = seen.chart(USUAL, strokes)
    assert len(set(before)) == 1
    seen.page.hover("#speed-gpu0 tbody tr >> nth=3")
    after = seen.chart(USUAL, strokes)
    assert [number for number, colour in enumerate(after) if colour != before[0]] == [3]
    seen.page.mouse.move(0, 0)
    assert seen.chart(USUAL, strokes) == before


def test_alert_leads_to_its_chart_and_the_chart_back(browser: Browser, served: Site) -> None:
    with watched(browser, served.url, NOW_S, viewport={"width": 1440, "height": 900}) as seen:
        page = seen.page
        page.goto(served.url)
        page.click("#alerts summary")
        page.click("#alerts a[href^='#history-']")
        page.locator(f"#{LAUNCH} canvas").wait_for()
        page.click(f"#{LAUNCH} a[href^='#alert-']")
        page.wait_for_function("() => scrollY < 200")
        seen.well()


def test_what_is_shown_can_be_taken_away(browser: Browser, served: Site) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    with watched(browser, served.url, NOW_S, permissions=allowed) as seen:
        page = seen.page
        page.goto(f"{served.url}#range=7d")
        seen.drawn()
        with page.expect_download() as download:
            page.click("#csv")
        rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
        assert download.value.suggested_filename == f"{USUAL}.csv"
        assert {(row["probe"], row["mode"]) for row in rows} > {
            ("launch", "submit"),
            ("copy", "host_to_device"),
        }
        assert all(
            1e-5 < float(row["median"]) < 2e-5
            for row in rows
            if row["mode"] == "submit" and row["median"]
        )
        with page.expect_download() as download:
            page.click("#png")
        assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
        page.click("#alerts summary")
        page.click("#alerts code + .copy")
        assert page.evaluate("navigator.clipboard.readText()") == "gpud alerts ack 9f8fb862"
        seen.well()


def test_colours_are_those_that_were_chosen(browser: Browser, served: Site) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with watched(browser, served.url, NOW_S, color_scheme="light") as seen:
        seen.page.goto(served.url)
        light = seen.page.evaluate(back)
        seen.page.select_option("#theme", "dark")
        dark = seen.page.evaluate(back)
        assert dark != light
        seen.page.reload()
        assert seen.page.evaluate(back) == dark
        seen.page.select_option("#theme", "light dark")
        assert seen.page.evaluate(back) == light
