"""The real scheduler on the real clock; a jump is an appointment moved as far as it would be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.schedule import Every, Schedule

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


def moved(schedule: Schedule, by: timedelta) -> None:
    """Put the appointment where a wall clock that jumped by ``-by`` would see it."""
    for job in schedule._scheduler.get_jobs():
        job.modify(next_run_time=datetime.now(UTC) + by)


def next_in_s(schedule: Schedule) -> float:
    (job,) = schedule._scheduler.get_jobs()
    left: timedelta = job.next_run_time - datetime.now(UTC)
    return left.total_seconds()


def test_the_first_run_comes_at_once_and_the_others_follow() -> None:
    async def story() -> None:
        schedule, job = Schedule(), Counted(3)
        schedule.every(0.05, "job", job.run)
        schedule.start()
        await job.wait()
        schedule.stop()

    asyncio.run(story())


def test_after_the_clock_was_set_back_an_hour_the_next_run_is_one_interval_away() -> None:
    async def story() -> None:
        schedule, job = Schedule(), Counted(1)
        schedule.every(0.1, "job", job.run, first_after_s=60)
        schedule.start()
        moved(schedule, timedelta(hours=1))
        schedule.after_jump()
        assert next_in_s(schedule) <= 0.1
        await job.wait()
        schedule.stop()

    asyncio.run(story())


def test_after_a_night_asleep_a_missed_run_is_made_up_for_once() -> None:
    async def story() -> None:
        schedule, job = Schedule(), Counted(1)
        schedule.every(60, "job", job.run, first_after_s=60)
        schedule.start()
        moved(schedule, timedelta(hours=-8))
        schedule.after_jump()
        await job.wait()
        assert 59 < next_in_s(schedule) <= 60
        assert job.runs == 1
        schedule.stop()

    asyncio.run(story())


def test_a_jump_that_moves_nothing_out_of_reach_changes_no_appointment() -> None:
    async def story() -> None:
        schedule = Schedule()
        schedule.every(60, "job", Counted(1).run, first_after_s=30)
        schedule.start()
        schedule.after_jump()
        assert 25 < next_in_s(schedule) <= 30
        schedule.stop()

    asyncio.run(story())


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

        schedule = Schedule()
        schedule.every(0.05, "slow", slow)
        schedule.start()
        await asyncio.wait_for(enough.wait(), SOON_S)
        schedule.stop()
        assert most == 1

    asyncio.run(story())


def test_nothing_starts_after_the_end() -> None:
    async def story() -> None:
        schedule, job = Schedule(), Counted(1)
        schedule.every(0.05, "job", job.run)
        schedule.start()
        await job.wait()
        schedule.stop()
        runs = job.runs
        await asyncio.sleep(0.15)
        assert job.runs == runs

    asyncio.run(story())


def test_a_schedule_that_never_started_can_be_stopped() -> None:
    Schedule().stop()


@given(
    interval_s=st.floats(min_value=0.2, max_value=86400),
    ratio=st.floats(min_value=0, max_value=0.5),
    moved_s=st.none() | st.floats(min_value=-1e6, max_value=1e6),
)
def test_wherever_the_clock_goes_the_next_time_is_at_most_an_interval_and_its_jitter_away(
    interval_s: float, ratio: float, moved_s: float | None
) -> None:
    trigger = Every(interval_s, interval_s * ratio)
    previous = None if moved_s is None else NOON + timedelta(seconds=moved_s)
    planned = trigger.get_next_fire_time(previous, NOON)
    assert planned - NOON <= trigger.longest + timedelta(seconds=interval_s)
    if previous is None or abs(moved_s or 0) >= interval_s:
        assert planned >= NOON
        assert planned - NOON <= trigger.longest + timedelta(microseconds=2)


def test_on_time_runs_keep_their_beat_and_do_not_drift_by_their_delay() -> None:
    trigger = Every(60, 0)
    late = NOON + timedelta(seconds=2)
    assert trigger.get_next_fire_time(NOON, late) == NOON + timedelta(seconds=60)


@pytest.mark.parametrize("ratio", [0.0, 0.1])
def test_jitter_spreads_and_without_it_the_time_is_exact(ratio: float) -> None:
    times = {Every(60, 60 * ratio).get_next_fire_time(None, NOON) for _ in range(50)}
    assert (len(times) > 1) == bool(ratio)
