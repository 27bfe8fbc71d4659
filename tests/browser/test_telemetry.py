"""Telemetry of a day below the speed of a GPU: one axis of time, a closed lid, and heat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import past, worlds
from tests.browser.watching import site, watched
from tests.histories import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.browser.watching import Site, Watched

NAMES = ("temperature", "power", "smclock", "memoryclock", "use", "memory")
CHARTS = tuple(f"telemetry-gpu0-{name}" for name in NAMES)
HEAT, CLOCK, MEMORY = CHARTS[0], CHARTS[2], CHARTS[5]
SPEED = "usual-gpu0"
HOT_S = past.NOW_S - (past.HOT_H[1] + 0.2) * HOUR_S
"""When it was too hot for some time."""


@pytest.fixture(scope="module")
def served(year: Path) -> Iterator[Site]:
    with site(worlds.fine(), year) as made:
        yield made


@pytest.fixture(scope="module")
def seen(browser: Browser, served: Site) -> Iterator[Watched]:
    with watched(browser, served.url, past.NOW_S, viewport={"width": 1280, "height": 1440}) as seen:
        seen.page.goto(f"{served.url}#range=24h")
        seen.page.click("#heat-gpu0 summary")
        seen.drawn()
        yield seen
        seen.well()


def words(seen: Watched, figure: str) -> str:
    return seen.page.inner_text(f"#{figure} .value")


def point(seen: Watched, figure: str, at_s: float) -> None:
    """Move the mouse to a moment of a chart."""
    over = seen.page.locator(f"#{figure} .u-over")
    left = seen.chart(figure, f"u.valToPos({at_s}, 'x')")
    over.hover(position={"x": left, "y": 20})
    seen.page.wait_for_function("(id) => gpud.drawn()[id].cursor.idx !== null", arg=MEMORY)


def test_they_are_folded_until_something_is_slower(browser: Browser, year: Path) -> None:
    for state, is_open in (("fine", False), ("regressed", True)):
        with (
            site(worlds.snapshot(state), year) as served,
            watched(browser, served.url, past.NOW_S) as seen,
        ):
            seen.page.goto(served.url)
            assert seen.page.locator(f"#{HEAT}").is_visible() is is_open, state
            seen.well()


def test_each_field_is_a_chart_in_line_with_that_of_speed(seen: Watched) -> None:
    drawn = "() => [...document.querySelectorAll('[data-chart=telemetry]')].map((one) => one.id)"
    assert tuple(seen.page.evaluate(drawn)) == CHARTS
    shown = "[u.scales.x.min, u.scales.x.max, u.bbox.left, u.bbox.width]"
    for figure in CHARTS:
        assert seen.chart(figure, shown) == seen.chart(SPEED, shown), figure
    labels = "u.axes[0]._values.filter((text) => text)"
    assert [len(seen.chart(figure, labels)) > 0 for figure in CHARTS] == [False] * 5 + [True]
    assert seen.chart(CHARTS[-1], labels) == seen.chart(SPEED, labels)


def test_newest_figures_and_those_at_the_cursor_are_beside_the_name(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    assert words(seen, HEAT).startswith(("48 °C", "49 °C", "50 °C"))
    assert words(seen, MEMORY).endswith("GiB)")
    point(seen, SPEED, HOT_S)
    assert int(words(seen, HEAT).split(" ")[0]) > 80, "the cursor is in every chart"
    assert "held down by thermal" in words(seen, CLOCK)
    assert "held down" not in words(seen, HEAT)
    point(seen, HEAT, past.NOW_S - (past.HOLE_H[0] - 0.5) * HOUR_S)
    assert words(seen, HEAT) == "not read then"
    seen.page.mouse.move(0, 0)


def test_keyboard_moves_and_reads_aloud(seen: Watched) -> None:
    seen.page.focus(f"#{HEAT} .plot")
    seen.page.keyboard.press("ArrowLeft")
    spoken = seen.page.inner_text(f"#{HEAT} .spoken")
    assert spoken.startswith("2023-11-14 23:1")
    assert "temperature" in spoken
    seen.page.keyboard.press("Escape")


def test_time_in_which_heat_held_the_clocks_down_is_shaded_and_named(seen: Watched) -> None:
    seen.page.mouse.move(0, 0)
    texts = seen.written(CLOCK)
    assert "thermal" in texts
    assert "idle" not in texts, "that slows nothing"
    hot, cool = seen.chart(
        HEAT,
        f"""{{ const y = Math.round(u.bbox.top + 4);
        const row = u.ctx.getImageData(0, y, u.ctx.canvas.width, 1).data;
        return [{HOT_S}, {HOT_S - 3 * HOUR_S}].map((at_s) => {{
          const x = Math.round(u.valToPos(at_s, 'x', true));
          return [...row.slice(4 * x, 4 * x + 4)];
        }}); }}""",
    )
    assert hot != cool
