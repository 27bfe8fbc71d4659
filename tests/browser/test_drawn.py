"""Where lines and words stand in a chart, and what can be seen of a box that scrolls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries
from tests.browser import past, worlds
from tests.browser.canvas import RECORDER, strokes, texts
from tests.browser.pixels import rows
from tests.browser.serving import site
from tests.browser.watching import watched
from tests.histories import HOUR_S, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

    from tests.browser.serving import Site
    from tests.browser.watching import Watched

LAUNCH, TRIAD = "history-gpu0-launch", "history-gpu0-triad"
CROSSOVER = "crossover-gpu0"
NOW_S = past.NOW_S
USUAL = [3.0, 5.0]
"""The pattern of the line at the usual level."""
SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1280, "height": 800}}


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.regressed(), year) as made:
        yield made


@pytest.mark.parametrize(("minutes", "shown"), [(25, 25), (3, 10)])
def test_a_chart_of_a_new_user_begins_with_the_first_run_and_so_does_its_usual_level(
    browser: Browser, tmp_path: Path, minutes: int, shown: int
) -> None:
    with opened(tmp_path) as store:
        store.append([run for run in past.Past().runs() if run.finished_s > NOW_S - 60 * minutes])
        first_s = store.read(queries.first_s)
    assert first_s is not None
    fine = worlds.fine()
    assert fine.store is not None
    new = replace(fine, store=replace(fine.store, first_s=first_s))
    with site(new, tmp_path) as served, watched(browser, served.url, NOW_S) as seen:
        seen.page.add_init_script(RECORDER)
        seen.page.goto(served.url)
        seen.scroll()
        for figure in (LAUNCH, TRIAD):
            low, high = seen.chart(figure, "[u.scales.x.min, u.scales.x.max]")
            assert high - low == pytest.approx(60 * shown, abs=60)
            left = seen.chart(
                figure, f"u.valToPos({first_s}, 'x') + u.bbox.left / devicePixelRatio"
            )
            starts = [line[0][0] for line in strokes(seen.page, figure, USUAL)]
            assert starts, "the usual level is drawn"
            assert starts == pytest.approx([left] * len(starts), abs=1)
        assert "since the first run" in seen.page.inner_text("#zone")
        seen.well()


@pytest.mark.parametrize(
    ("begin_h", "end_h", "told"),
    [
        (12.0, 10.0, "last in this window: "),
        (7.9, 6.6, "no figures in this time"),  # the lid was closed
    ],
)
def test_a_window_has_figures_of_its_own_time_alone_in_its_legend(
    browser: Browser, served: Site, begin_h: float, end_h: float, told: str
) -> None:
    begin, end = NOW_S - begin_h * HOUR_S, NOW_S - end_h * HOUR_S
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(f"{served.url}#range=24h&from={begin:.0f}&to={end:.0f}")
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        when = seen.page.inner_text(f"#{LAUNCH} .legend .when")
        values = seen.page.locator(f"#{LAUNCH} .legend .value").all_inner_texts()
        assert when.startswith(told)
        if "no figures" in told:
            assert all(one.startswith("no figure") for one in values)
        seen.well()


def test_a_step_that_goes_on_after_the_window_is_not_told_by_its_last_run(
    browser: Browser, served: Site
) -> None:
    begin, end = NOW_S - 22 * HOUR_S, NOW_S - 25
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(f"{served.url}#range=24h&from={begin:.0f}&to={end:.0f}")
        seen.page.locator(f"#{LAUNCH}").scroll_into_view_if_needed()
        seen.drawn()
        assert "23:14:40" not in seen.page.inner_text(f"#{LAUNCH} .legend .when")
        seen.well()


def test_the_way_back_from_a_window_looks_like_the_page_and_the_zone_is_told_once(
    browser: Browser, served: Site
) -> None:
    window = f"from={NOW_S - 7200:.0f}&to={NOW_S - 3600:.0f}"
    with watched(browser, served.url, NOW_S, timezone_id="UTC") as seen:
        for utc in ("", "&utc=1"):
            seen.page.goto("about:blank")
            seen.page.goto(f"{served.url}#range=24h&{window}{utc}")
            seen.page.locator("#reset").wait_for()
            assert seen.page.inner_text("#zone").count("UTC") == 1
        look = "(one) => { const {fontFamily, borderRadius, color} = getComputedStyle(one);"
        look += " return [fontFamily, borderRadius, color]; }"
        button = seen.page.locator("#reset").evaluate(look)
        body = seen.page.locator("body").evaluate(look)
        assert button[0] == body[0]
        assert button[1] != "0px"
        assert button[2] == body[2]
        seen.well()


@pytest.mark.parametrize("size", SIZES)
def test_no_words_of_the_crossover_chart_lie_on_others(
    browser: Browser, served: Site, size: str
) -> None:
    with watched(browser, served.url, NOW_S, viewport=SIZES[size]) as seen:
        seen.page.add_init_script(RECORDER)
        seen.page.goto(served.url)
        seen.scroll()
        found = texts(seen.page, CROSSOVER)
        assert any("GPU wins from 256" in one.text for one in found)
        assert any(one.text.startswith("CPU 9.66") for one in found)
        laid = [
            (one.text, other.text)
            for place, one in enumerate(found)
            for other in found[:place]
            if one.overlaps(other)
        ]
        assert laid == []


def test_the_focus_ring_of_the_menu_is_seen_whole(browser: Browser, served: Site) -> None:
    with watched(browser, served.url, NOW_S) as seen:
        seen.page.goto(served.url)
        for _ in range(3):
            seen.page.keyboard.press("Tab")
        ring, shown = seen.page.evaluate(
            """() => {
              const one = document.activeElement, style = getComputedStyle(one);
              const grown = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
              const box = one.getBoundingClientRect();
              const nav = one.closest("nav").getBoundingClientRect();
              return [[box.left - grown, box.top - grown, box.right + grown, box.bottom + grown],
                      [nav.left, nav.top, nav.right, nav.bottom]];
            }"""
        )
        assert ring[0] >= shown[0]
        assert ring[1] >= shown[1]
        assert ring[2] <= shown[2]
        assert ring[3] <= shown[3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_goes_on_beyond_an_edge_has_a_shade_there(
    browser: Browser, served: Site, scheme: str
) -> None:
    with watched(browser, served.url, NOW_S, viewport=SIZES["phone"], color_scheme=scheme) as seen:
        seen.page.goto(served.url)
        for name in ("nav", "#alerts .scroll", "#gpus .scroll", "#drivers .scroll"):
            box = seen.page.locator(name).first
            box.scroll_into_view_if_needed()
            more = box.evaluate("(one) => one.scrollWidth - one.clientWidth")
            assert _shaded(seen, box) == (False, more > 0), name
            box.evaluate("(one) => one.scrollTo({left: one.scrollWidth, behavior: 'instant'})")
            assert _shaded(seen, box) == (more > 0, False), name
        assert seen.page.locator("nav").evaluate("(one) => one.scrollWidth - one.clientWidth") > 0


def _shaded(seen: Watched, box: Locator) -> tuple[bool, bool]:
    """Say whether the left and the right edge of a box are of another colour than its inside."""
    seen.page.mouse.move(0, 0)
    picture = rows(box.screenshot())
    colours = [one for row in picture for one in row]
    ground = max(set(colours), key=colours.count)

    def other(place: int) -> bool:
        # Words and rules touch an edge here and there; a shade is all along it.
        column = [row[place] for row in picture]
        return sum(one != ground for one in column) > 0.8 * len(column)

    return other(2), other(-3)
