"""APScheduler 3.x behind a few functions; its next major is a redesign only this file would know.

It keeps its appointments by the wall clock. WSL2 wall clocks jump, so whoever watches the clocks
calls ``after_jump``: each appointment is made anew, and a night asleep is one run, not hundreds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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
            IntervalTrigger(
                seconds=interval_s, jitter=interval_s * jitter_ratio or None, timezone=UTC
            ),
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
        """Make every appointment anew, from now: the old ones belong to another clock."""
        for job in self._scheduler.get_jobs():
            job.reschedule(job.trigger)

    def stop(self) -> None:
        """Start nothing more; what runs goes on."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
