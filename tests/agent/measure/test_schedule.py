"""The real scheduler on the real clock; a pause is reported to it, as the watch of clocks does."""

from __future__ import annotations

import asyncio
import calendar
import itertools
import json
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud import logs
from gpud.agent.measure.clocks import ClockWatch, local_min, now
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.schedule import MONOTONIC, Every, Schedule
from gpud.agent.state.board import Board
from gpud.core import clock
from gpud.core.clock import Instant
from gpud.core.health import Level
from gpud.core.sample import Skip
from tests import snapshots
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""Patience for what should come at once: two cores are shared with everything else."""
HOUR_S = 3600.0


class Counted:
    """A job that counts its runs, and how many went on at once."""

    def __init__(self, enough: int = 1, takes_s: float = 0.0) -> None:
        self.runs = self.at_once = self.most = 0
        self.done = asyncio.Event()
        self._enough = enough
        self._takes_s = takes_s

    async def run(self) -> None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self._takes_s)
        self.at_once -= 1
        self.runs += 1
        if self.runs >= self._enough:
            self.done.set()


def next_run(schedule: Schedule) -> datetime:
    (job,) = schedule._scheduler.get_jobs()
    moment: datetime = job.next_run_time
    return moment


def assert_next(schedule: Schedule, after_s: float, since: datetime) -> None:
    """The job is due so long after a moment between ``since`` and now."""
    moment = next_run(schedule) - timedelta(seconds=after_s)
    assert since <= moment <= datetime.now(MONOTONIC)


async def test_after_a_night_asleep_a_missed_run_is_made_up_for_once() -> None:
    schedule, job = Schedule(Board(snapshots.bare())), Counted()
    schedule.every(60, "job", job.run, first_after_s=60)
    schedule.start()
    since = datetime.now(MONOTONIC)
    schedule.after_pause(8 * HOUR_S, rest_s=0.05)
    await asyncio.wait_for(job.done.wait(), LIMIT_S)
    assert_next(schedule, 60, since)
    assert job.runs == 1
    schedule.stop()


async def test_end_logs_nothing_of_jobs_that_run_or_have_not_begun_and_a_pause_after_it_moves_none(
    tmp_path: Path,
) -> None:
    logs.configure(tmp_path / "agent.log", level="info", terminal=False)
    schedule, waiting = Schedule(Board(snapshots.bare())), Counted()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def runs() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    schedule.every(60, "runs", runs)
    schedule.start()
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    schedule.every(60, "waits", waiting.run)
    schedule.stop()
    await asyncio.wait_for(ended.wait(), LIMIT_S)
    schedule.after_pause(HOUR_S, rest_s=1)
    await asyncio.sleep(0.01)  # the scheduler has had its say
    assert waiting.runs == 0
    log = (tmp_path / "agent.log").read_text()
    assert "CancelledError" not in log
    assert '"error"' not in log


def test_interval_may_change_from_one_run_to_the_next() -> None:
    intervals_s = [120.0]
    trigger = Every(lambda: intervals_s[-1], 0.0)
    assert trigger.get_next_fire_time(None, NOON) == NOON + timedelta(seconds=120)
    intervals_s.append(600.0)
    assert trigger.get_next_fire_time(NOON, NOON) == NOON + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("first_after_s", "paused_s", "expected_s"),
    [
        (60, 8 * HOUR_S, 10),  # what was missed comes after the rest
        (50, 20, 30),  # what is not due yet is nearer by the pause
    ],
)
async def test_pause_brings_jobs_nearer_and_none_into_the_rest(
    first_after_s: float, paused_s: float, expected_s: float
) -> None:
    schedule, since = Schedule(Board(snapshots.bare())), datetime.now(MONOTONIC)
    schedule.every(60, "job", Counted().run, first_after_s=first_after_s)
    schedule.start()
    schedule.after_pause(paused_s, rest_s=10)
    assert_next(schedule, expected_s, since)
    schedule.stop()


def test_schedule_reads_the_monotonic_clock_and_no_other() -> None:
    before_s = time.monotonic()
    moment = datetime.now(MONOTONIC)
    after_s = time.monotonic()
    since_boot_s = (moment - datetime.fromtimestamp(0, UTC)).total_seconds()
    assert before_s - 1e-5 <= since_boot_s <= after_s + 1e-5


async def test_long_run_is_never_joined_by_another_and_none_starts_after_the_end() -> None:
    schedule, job = Schedule(Board(snapshots.bare())), Counted(2, takes_s=0.12)
    schedule.every(0.05, "slow", job.run)
    schedule.start()
    await asyncio.wait_for(job.done.wait(), LIMIT_S)
    schedule.stop()
    runs = job.runs
    await asyncio.sleep(0.3)
    assert (job.most, job.runs) == (1, runs)


@given(
    interval_s=st.floats(min_value=0.2, max_value=86400),
    ratio=st.floats(min_value=0, max_value=0.5),
    ago_s=st.none() | st.floats(min_value=0, max_value=1e6),
)
def test_next_time_is_ahead_and_at_most_an_interval_and_its_jitter_away(
    interval_s: float, ratio: float, ago_s: float | None
) -> None:
    previous = None if ago_s is None else NOON - timedelta(seconds=ago_s)
    planned = Every(interval_s, ratio).get_next_fire_time(previous, NOON)
    longest = timedelta(seconds=interval_s * (1 + ratio), microseconds=2)
    assert NOON <= planned <= NOON + longest


def test_runs_keep_their_beat_and_jitter_makes_intervals_as_often_shorter_as_longer() -> None:
    trigger, late = Every(60, 0.1), NOON + timedelta(seconds=2)
    taken_s = [(trigger.get_next_fire_time(NOON, late) - NOON).total_seconds() for _ in range(4000)]
    assert statistics.mean(taken_s) == pytest.approx(60, abs=0.5)
    assert min(taken_s) == pytest.approx(54, abs=0.5)
    assert max(taken_s) == pytest.approx(66, abs=0.5)


class Fails:
    """A job or task that fails in its first runs, and waits afterwards."""

    def __init__(self, times: int, then: asyncio.Event | None = None) -> None:
        self.left = times
        self.then = then

    async def run(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise ValueError("a bug")
        if self.then is not None:
            await self.then.wait()


async def reported(board: Board, level: Level, detail: str | None) -> None:
    """Wait until the agent's health is this."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            health = board.read().health.get("agent")
            if health is not None and (health.level, health.detail) == (level, detail):
                return
            await board.changed.wait()
            board.changed.clear()


async def test_job_that_failed_is_reported_until_it_goes_well_and_hides_no_other() -> None:
    bug = "ValueError: a bug"

    async def reported_after_start(schedule: Schedule, board: Board) -> None:
        schedule.start()
        await reported(board, Level.DEGRADED, f"first: {bug}")

    board, first = Board(snapshots.bare()), Fails(10**6)
    schedule = Schedule(board)
    schedule.every(0.05, "first", first.run)
    await reported_after_start(schedule, board)
    schedule.every(0.05, "second", Fails(10).run)
    await reported(board, Level.DEGRADED, f"first: {bug}; second: {bug}")
    await reported(board, Level.DEGRADED, f"first: {bug}")
    first.left = 0
    await reported(board, Level.OK, None)
    schedule.stop()


@pytest.mark.parametrize(
    ("words", "fix", "traced"),
    [
        ("can't start new thread", "end processes, or allow more", False),
        ("a bug", "this is a bug in gpud", True),
    ],
)
async def test_job_that_gets_no_thread_is_a_line_with_its_reason_and_no_bug(
    words: str, fix: str, *, traced: bool, tmp_path: Path
) -> None:
    logs.configure(tmp_path / "agent.log", level="error", terminal=False)
    board = Board(snapshots.bare())
    schedule = Schedule(board)

    async def job() -> None:
        raise RuntimeError(words)

    schedule.every(60, "job", job)
    schedule.start()
    await reported(board, Level.DEGRADED, f"job: RuntimeError: {words}")
    schedule.stop()
    assert (board.read().health["agent"].fix or "").startswith(fix)
    (line,) = map(json.loads, (tmp_path / "agent.log").read_text().splitlines())
    assert (line["event"], line["error"], "exception" in line) == ("job_failed", words, traced)


async def test_task_that_failed_is_begun_again_and_well_when_it_goes_on_or_ends(
    tmp_path: Path,
) -> None:
    logs.configure(tmp_path / "agent.log", level="error", terminal=False)
    board = Board(snapshots.bare())
    schedule = Schedule(board, retry_s=0.01, steady_s=0.05)
    work = Fails(2, asyncio.Event())
    task = asyncio.create_task(schedule.task("judge", work.run))
    await reported(board, Level.DEGRADED, "judge: ValueError: a bug")
    assert '"task_failed"' in (tmp_path / "agent.log").read_text()
    await reported(board, Level.OK, None)
    assert work.left == -1
    task.cancel()
    await asyncio.wait({task})
    once = Fails(0)
    await asyncio.wait_for(schedule.task("once", once.run), LIMIT_S)
    assert once.left == -1


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


@pytest.mark.parametrize(
    ("offset_s", "closed"),
    [
        *((jump_s, Skip.CLOCK_JUMPED) for jump_s in (6.0, -6.0, 20.0, -3600.0)),
        *((correction_s, None) for correction_s in (0.4, -0.4, 1.0, -4.0)),
        (3600.0, Skip.RESUMED),
    ],
)
async def test_after_a_jump_in_either_direction_the_gpu_rests_and_jobs_are_put_off(
    offset_s: float, closed: Skip | None
) -> None:
    board = Board(snapshots.bare())
    schedule = Schedule(board)
    launcher = Launcher(None)
    at, begun = now(), datetime.now(MONOTONIC)
    watch = ClockWatch(board, schedule, launcher, at)
    schedule.every(60, "job", Counted().run, first_after_s=2)
    schedule.start()
    watch.look(Instant(at.wall_s + offset_s, at.mono_s))
    due_in_s = (next_run(schedule) - begun).total_seconds()
    schedule.stop()
    assert launcher.closed_to_gpu_work() is closed
    assert (due_in_s >= clock.REST_S) == (closed is not None)
