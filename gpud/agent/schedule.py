"""APScheduler 3.x behind a few functions; its next major is a redesign only this file would know.

It keeps its appointments by the wall clock. WSL2 wall clocks jump, so whoever watches the clocks
calls ``after_jump``: what a night asleep made late runs once, not hundreds of times, and what a
clock set back put an hour away comes after one interval.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Every(BaseTrigger):  # type: ignore[misc]  # apscheduler ships no types
    """Fire one interval after the last time, give or take the jitter, never to make up for more.

    APScheduler's own interval trigger counts from a fixed date: set the clock back before that
    date and it waits for it; sleep a night and it steps through each time that was missed.
    """

    def __init__(self, interval_s: float, jitter_s: float) -> None:
        self._interval = timedelta(seconds=interval_s)
        self._jitter_s = jitter_s
        self.longest = timedelta(seconds=interval_s + jitter_s)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """Give the next time, after ``previous`` if that was just now and else after ``now``."""
        recent = previous is not None and abs(now - previous) < self._interval
        base = previous if previous is not None and recent else now
        planned: datetime = self._apply_jitter(base + self._interval, self._jitter_s, now)
        return planned


class Schedule:
    """Jobs by name, each at most once at a time, each missed run made up for once."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(timezone=UTC)

    def every(
        self,
        interval_s: float,
        name: str,
        job: Callable[[], Awaitable[None]],
        *,
        jitter_ratio: float = 0.0,
        first_after_s: float = 0.0,
    ) -> None:
        """Run ``job`` every ``interval_s``, give or take the jitter."""
        self._scheduler.add_job(
            job,
            Every(interval_s, interval_s * jitter_ratio),
            id=name,
            next_run_time=datetime.now(UTC) + timedelta(seconds=first_after_s),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # late is better than never, and coalesce makes it once
        )

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._scheduler.start()

    def after_jump(self) -> None:
        """Look at every appointment by the new time: late is now, too far away is made anew."""
        now = datetime.now(UTC)
        for job in self._scheduler.get_jobs():
            if job.next_run_time - now > job.trigger.longest:
                job.reschedule(job.trigger)
        self._scheduler.wakeup()

    def stop(self) -> None:
        """Start nothing more; what runs goes on."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
