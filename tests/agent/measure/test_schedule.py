"""The real scheduler on the real clock; a pause is told to it, as whoever watches clocks does."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure.schedule import MONOTONIC, Every, Schedule
from gpud.core.health import Level
from tests.agent.measure.rounds import RecordingBoard, Reported

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOON_S = 5.0
"""Patience for what should come at once: two cores are shared with everything else."""


class Counted:
    """A job that counts its runs and says when it has run ``enough`` times."""

    def __init__(self, enough: int) -> None:
        self.runs = 0
        self.done = asyncio.Event()
        self._enough = enough

    async def run(self) -> None:
        self.runs += 1
        if self.runs >= self._enough:
            self.done.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.done.wait(), SOON_S)


def next_in_s(schedule: Schedule) -> float:
    (job,) = schedule._scheduler.get_jobs()
    left: timedelta = job.next_run_time - datetime.now(MONOTONIC)
    return left.total_seconds()


def test_after_a_night_asleep_a_missed_run_is_made_up_for_once() -> None:
    async def story() -> None:
        schedule, job = Schedule(RecordingBoard()), Counted(1)
        schedule.every(60, "job", job.run, first_after_s=60)
        schedule.start()
        schedule.after_pause(8 * 3600, rest_s=0.05)
        await job.wait()
        assert 59 < next_in_s(schedule) <= 60
        assert job.runs == 1
        schedule.stop()

    asyncio.run(story())


def test_a_machine_that_just_woke_rests_before_the_missed_run() -> None:
    async def story() -> None:
        schedule = Schedule(RecordingBoard())
        schedule.every(60, "job", Counted(1).run, first_after_s=60)
        schedule.start()
        schedule.after_pause(8 * 3600, rest_s=10)
        assert 9 < next_in_s(schedule) <= 10
        schedule.stop()

    asyncio.run(story())


def test_a_pause_counts_as_waiting_time_for_what_is_not_due_yet() -> None:
    async def story() -> None:
        schedule = Schedule(RecordingBoard())
        schedule.every(60, "job", Counted(1).run, first_after_s=50)
        schedule.start()
        schedule.after_pause(20, rest_s=10)
        assert 29 < next_in_s(schedule) <= 30
        schedule.stop()

    asyncio.run(story())


def test_the_schedule_reads_the_monotonic_clock_and_no_other() -> None:
    before_s = time.monotonic()
    moment = datetime.now(MONOTONIC)
    after_s = time.monotonic()
    since_boot_s = (moment - datetime.fromtimestamp(0, UTC)).total_seconds()
    assert before_s - 1e-5 <= since_boot_s <= after_s + 1e-5


def test_a_run_that_takes_longer_than_its_interval_is_never_joined_by_another() -> None:
    async def story() -> None:
        at_once = most = 0
        enough = asyncio.Event()
        runs = 0

        async def slow() -> None:
            nonlocal at_once, most, runs
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.12)
            at_once -= 1
            runs += 1
            if runs == 2:
                enough.set()

        schedule = Schedule(RecordingBoard())
        schedule.every(0.05, "slow", slow)
        schedule.start()
        await asyncio.wait_for(enough.wait(), SOON_S)
        schedule.stop()
        assert most == 1

    asyncio.run(story())


def test_nothing_starts_after_the_end() -> None:
    async def story() -> None:
        schedule, job = Schedule(RecordingBoard()), Counted(1)
        schedule.every(0.05, "job", job.run)
        schedule.start()
        await job.wait()
        schedule.stop()
        runs = job.runs
        await asyncio.sleep(0.15)
        assert job.runs == runs

    asyncio.run(story())


@given(
    interval_s=st.floats(min_value=0.2, max_value=86400),
    ratio=st.floats(min_value=0, max_value=0.5),
    ago_s=st.none() | st.floats(min_value=0, max_value=1e6),
)
def test_the_next_time_is_ahead_and_at_most_an_interval_and_its_jitter_away(
    interval_s: float, ratio: float, ago_s: float | None
) -> None:
    previous = None if ago_s is None else NOON - timedelta(seconds=ago_s)
    planned = Every(interval_s, interval_s * ratio).get_next_fire_time(previous, NOON)
    longest = timedelta(seconds=interval_s * (1 + ratio), microseconds=2)
    assert NOON <= planned <= NOON + longest


def test_on_time_runs_keep_their_beat_and_do_not_drift_by_their_delay() -> None:
    trigger = Every(60, 0)
    late = NOON + timedelta(seconds=2)
    assert trigger.get_next_fire_time(NOON, late) == NOON + timedelta(seconds=60)


@pytest.mark.parametrize("ratio", [0.0, 0.1])
def test_jitter_spreads_and_without_it_the_time_is_exact(ratio: float) -> None:
    times = {Every(60, 60 * ratio).get_next_fire_time(None, NOON) for _ in range(50)}
    assert (len(times) > 1) == bool(ratio)


def test_a_job_that_runs_when_the_schedule_stops_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def job() -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        schedule = Schedule(RecordingBoard())
        schedule.every(60, "job", job)
        schedule.start()
        await asyncio.wait_for(begun.wait(), SOON_S)
        schedule.stop()
        await asyncio.wait_for(ended.wait(), SOON_S)
        await asyncio.sleep(0.01)  # the scheduler has had its say

    asyncio.run(story())
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


class _Fails:
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


def reported(board: RecordingBoard) -> list[tuple[Level, str | None]]:
    events = [event for event in board.events if isinstance(event, Reported)]
    assert {event.component for event in events} <= {"agent"}
    return [(event.health.level, event.health.detail) for event in events]


async def _until(board: RecordingBoard, count: int) -> None:
    while len(reported(board)) < count:
        await asyncio.wait_for(board.changed.wait(), SOON_S)
        board.changed.clear()


def test_a_job_that_failed_is_reported_until_it_goes_well_and_hides_no_other() -> None:
    board = RecordingBoard()
    schedule = Schedule(board)
    one, two = "one: ValueError: a bug", "two: ValueError: a bug"

    async def story() -> None:
        schedule.every(0.05, "two", _Fails(10**6).run)
        schedule.every(0.05, "one", _Fails(1).run)
        schedule.start()
        while (Level.DEGRADED, f"{two}; {one}") not in reported(board):
            await _until(board, len(reported(board)) + 1)
        while reported(board)[-1] != (Level.DEGRADED, two):
            await _until(board, len(reported(board)) + 1)
        schedule.stop()

    asyncio.run(story())


def test_a_task_that_failed_is_begun_again_and_well_when_it_goes_on() -> None:
    board = RecordingBoard()

    async def story() -> None:
        stumbles = _Fails(2, asyncio.Event())
        task = asyncio.create_task(
            Schedule(board, retry_s=0, steady_s=0.05).task("judge", stumbles.run)
        )
        await _until(board, 3)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(story())
    bug = (Level.DEGRADED, "judge: ValueError: a bug")
    assert reported(board) == [bug, bug, (Level.OK, None)]


def test_a_task_that_ends_is_not_begun_again() -> None:
    board = RecordingBoard()
    asyncio.run(Schedule(board).task("once", _Fails(0).run))
    assert reported(board) == []


def test_a_pause_moves_no_job_that_does_not_rest() -> None:
    async def story() -> None:
        schedule = Schedule(RecordingBoard())
        schedule.every(60, "tick", Counted(1).run, first_after_s=50, rests=False)
        schedule.start()
        schedule.after_pause(3600, rest_s=10)
        assert 49 < next_in_s(schedule) <= 50
        schedule.stop()

    asyncio.run(story())
