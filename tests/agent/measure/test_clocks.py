from __future__ import annotations

import calendar
import itertools
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure.clocks import ClockWatch, local_min, now
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.schedule import MONOTONIC, Schedule
from gpud.agent.state.board import Board
from gpud.core import clock
from gpud.core.clock import Instant
from gpud.core.sample import Skip
from tests import snapshots
from tests.agent.measure.rounds import Of
from tests.agent.measure.test_schedule import Counted, next_run

if TYPE_CHECKING:
    from collections.abc import Iterator

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
NIGHT = ("22:00-07:00",)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("TZ", BERLIN)
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def unix(text: str) -> float:
    return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M"))


@pytest.mark.parametrize(
    ("midnight", "hours"), [("2025-03-29 23:00", 23), ("2025-10-25 22:00", 25)]
)
def test_night_ends_by_the_clock_on_the_wall_on_a_day_of_23_or_25_hours(
    zone: pytest.MonkeyPatch, midnight: str, hours: int
) -> None:
    day = [unix(midnight) + 60 * minute for minute in range(hours * 60)]
    local = [local_min(now_s) for now_s in day]
    assert (local[0], local[-1]) == (0, 24 * 60 - 1)
    held = [now_s for now_s in day if clock.quiet(NIGHT, local_min(now_s))]
    assert len(held) == (7 + 2) * 60 + (hours - 24) * 60
    # One stretch from midnight and one to midnight, though an hour is left out or comes twice.
    assert sum(after - before > 60 for before, after in itertools.pairwise(held)) == 1
    assert (held[0], held[-1]) == (day[0], day[-1])


def test_zone_that_changes_is_followed(zone: pytest.MonkeyPatch) -> None:
    noon = unix("2025-07-01 12:00")
    assert local_min(noon) == 14 * 60
    zone.setenv("TZ", "IST-5:30")
    assert local_min(noon) == 17 * 60 + 30


@pytest.mark.parametrize("offset_s", [6.0, -6.0, 20.0, -3600.0])
async def test_after_a_jump_in_either_direction_the_gpu_rests_and_jobs_are_put_off(
    offset_s: float,
) -> None:
    due_in_s, closed = await after_jump_by(offset_s)
    assert closed is Skip.CLOCK_JUMPED
    assert due_in_s >= clock.REST_S


@pytest.mark.parametrize("offset_s", [0.4, -0.4, 1.0, -4.0])
async def test_small_corrections_of_the_clock_put_nothing_off(offset_s: float) -> None:
    due_in_s, closed = await after_jump_by(offset_s)
    assert closed is None
    assert due_in_s < clock.REST_S


async def test_after_a_long_pause_gpu_work_is_refused_as_that_of_a_resumed_machine() -> None:
    assert (await after_jump_by(3600.0))[1] is Skip.RESUMED


async def after_jump_by(offset_s: float) -> tuple[float, Skip | None]:
    """Give in how many seconds a job is due that was due in two, and why no GPU work starts."""
    board = Board(snapshots.bare())
    schedule = Schedule(board)
    launcher = Launcher(None)
    at, begun = now(), datetime.now(MONOTONIC)
    watch = ClockWatch(board, schedule, Of(), launcher, at)
    schedule.every(60, "job", Counted().run, first_after_s=2)
    schedule.start()
    watch.look(Instant(at.wall_s + offset_s, at.mono_s))
    due_in_s = (next_run(schedule) - begun).total_seconds()
    schedule.stop()
    return due_in_s, launcher.closed_to_gpu_work()
