"""APScheduler 3.x behind a few functions; its next major is a redesign only this file would know.

Appointments are kept by the monotonic clock: the wall clock of WSL2 jumps both ways and moves none
of them. That clock stands still while the machine sleeps, so whoever watches both clocks calls
``after_pause``: what the pause made late then runs once, not hundreds of times.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ZERO = timedelta(0)


class _Monotonic(tzinfo):
    """A time zone where it is as late as the monotonic clock says.

    ``datetime.now(its time zone)`` is the only way APScheduler looks at a clock, and Python asks
    the time zone what that is.
    """

    def utcoffset(self, _: datetime | None) -> timedelta:
        return _ZERO

    def dst(self, _: datetime | None) -> timedelta:
        return _ZERO

    def tzname(self, _: datetime | None) -> str:
        return "monotonic"

    def fromutc(self, _: datetime) -> datetime:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=time.monotonic())
        return moment.replace(tzinfo=self)


MONOTONIC = _Monotonic()


class Every(BaseTrigger):  # type: ignore[misc]  # apscheduler ships no types
    """Fire one interval after the last time, give or take the jitter, never to make up for more.

    APScheduler's own interval trigger steps through each time that was missed.
    """

    def __init__(self, interval_s: float, jitter_s: float) -> None:
        self._interval = timedelta(seconds=interval_s)
        self._jitter_s = jitter_s

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """Give the next time, after ``previous`` if that was just now and else after ``now``."""
        recent = previous is not None and now - previous < self._interval
        base = previous if previous is not None and recent else now
        planned: datetime = self._apply_jitter(base + self._interval, self._jitter_s, now)
        return planned


class Schedule:
    """Jobs by name, each at most once at a time, each missed run made up for once."""

    def __init__(self) -> None:
        self._scheduler = AsyncIOScheduler(timezone=MONOTONIC)

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

        async def once() -> None:
            with contextlib.suppress(asyncio.CancelledError):  # else told as a job that failed
                await job()

        self._scheduler.add_job(
            once,
            Every(interval_s, interval_s * jitter_ratio),
            id=name,
            next_run_time=datetime.now(MONOTONIC) + timedelta(seconds=first_after_s),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # late is better than never, and coalesce makes it once
        )

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._scheduler.start()

    def after_pause(self, paused_s: float, *, rest_s: float) -> None:
        """Bring every appointment nearer by the pause; nothing is due before ``rest_s`` from now.

        A machine that has just woken is no machine to measure: its GPU and Windows itself are
        still coming up.
        """
        earliest = datetime.now(MONOTONIC) + timedelta(seconds=rest_s)
        for job in self._scheduler.get_jobs():
            due = job.next_run_time - timedelta(seconds=paused_s)
            job.modify(next_run_time=max(due, earliest))

    def stop(self) -> None:
        """Start nothing more; what runs is cancelled, without a word."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
