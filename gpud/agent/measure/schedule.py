"""Jobs at intervals and lasting tasks of the agent: what they raise is logged, counted and shown.

APScheduler 3.x keeps the intervals; its next major is a redesign only this file would know.
Appointments are kept by the monotonic clock: the wall clock of WSL2 jumps both ways and moves none
of them. That clock stands still while the machine sleeps, so ``after_pause`` is called when it
wakes: what the pause made late then runs once, not hundreds of times.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from gpud.agent.state.board import Board

RETRY_S: Final = 5.0
"""After this a task that failed is begun again."""
STEADY_S: Final = 60.0
"""A task that was begun again and goes on for so long is well."""
BUG: Final = "this is a bug in gpud; the log has its traceback"
MORE: Final = "end processes, or allow more of them: ulimit -u, pids.max of the cgroup"
NO_THREAD: Final = "can't start new thread"
"""CPython's words where the system gives no more: no bug, and no other sign tells it apart."""
Work: TypeAlias = Callable[..., Awaitable[None]]

log = structlog.get_logger()


def _is_bug(error: Exception | str) -> bool:
    return not str(error).endswith(NO_THREAD)


class _Monotonic(tzinfo):
    """A time zone where it is as late as the monotonic clock says.

    ``datetime.now(its time zone)`` is the only way APScheduler looks at a clock, and Python asks
    the time zone what that is.
    """

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

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

    def __init__(self, interval_s: float | Callable[[], float], jitter_ratio: float) -> None:
        self._interval_s = interval_s
        self._jitter_ratio = jitter_ratio

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """Give the next time, after ``previous`` if that was just now and else after ``now``."""
        interval_s = self._interval_s() if callable(self._interval_s) else self._interval_s
        interval = timedelta(seconds=interval_s)
        recent = previous is not None and now - previous < interval
        base = previous if previous is not None and recent else now
        # APScheduler's own jitter only adds: intervals would be longer than is published.
        jitter = interval * self._jitter_ratio * random.uniform(-1.0, 1.0)  # noqa: S311
        return max(base + interval + jitter, now)


class Schedule:
    """Jobs by name, each at most once at a time, each missed run made up for once; and tasks.

    The health of ``agent`` is that of all together: a recovered job does not hide another. The
    two ``except Exception`` here are the only ones of the agent's work.
    """

    def __init__(
        self, board: Board, *, retry_s: float = RETRY_S, steady_s: float = STEADY_S
    ) -> None:
        self._board = board
        self._retry_s = retry_s
        self._steady_s = steady_s
        self._broken: dict[str, str] = {}
        self._scheduler = AsyncIOScheduler(timezone=MONOTONIC)

    def every(
        self,
        interval_s: float | Callable[[], float],
        name: str,
        job: Work,
        *args: object,
        jitter_ratio: float = 0.0,
        first_after_s: float = 0.0,
    ) -> None:
        """Call ``job(*args)`` every ``interval_s``, give or take the jitter.

        A function as ``interval_s`` is asked at each run for the time to the next.
        """
        self._scheduler.add_job(
            self._run_job,
            Every(interval_s, jitter_ratio),
            args=(name, job, *args),
            id=name,
            next_run_time=datetime.now(MONOTONIC) + timedelta(seconds=first_after_s),
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,  # late is better than never, and coalesce makes it once
        )

    async def _run_job(self, name: str, job: Work, *args: object) -> None:
        if task := asyncio.current_task():
            task.set_name(name)
        try:
            await job(*args)
        except asyncio.CancelledError:  # at the end; APScheduler would call it a failure
            return
        except Exception as error:
            log.exception("job_failed", job=name, error=str(error), exc_info=_is_bug(error))
            self._failed(name, error)
        else:
            self._recovered(name)

    async def task(self, name: str, work: Work) -> None:
        """Run a task until it returns; after a failure it is begun again."""
        loop = asyncio.get_running_loop()
        while True:
            steady = loop.call_later(self._steady_s, self._recovered, name)
            try:
                await work()
            except Exception as error:
                log.exception("task_failed", task=name, error=str(error), exc_info=_is_bug(error))
                self._failed(name, error)
            else:
                return
            finally:
                steady.cancel()
            await asyncio.sleep(self._retry_s)

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._scheduler.start()

    def after_pause(self, paused_s: float, *, rest_s: float) -> None:
        """Bring appointments nearer by the pause, and none nearer than ``rest_s`` from now.

        A job that still runs then is not run again for it: a round has waited for the same moment.
        A machine that has just woken is no machine to measure: its GPU and Windows itself are
        still coming up.
        """
        earliest = datetime.now(MONOTONIC) + timedelta(seconds=rest_s)
        for job in self._scheduler.get_jobs():  # none after the end
            due = job.next_run_time - timedelta(seconds=paused_s)
            job.modify(next_run_time=max(due, earliest))

    def stop(self) -> None:
        """Start no more jobs; those that run are cancelled, which is no failure."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _failed(self, name: str, error: Exception) -> None:
        self._broken[name] = f"{name}: {type(error).__name__}: {error}"
        self._report()

    def _recovered(self, name: str) -> None:
        self._broken.pop(name, None)
        self._report()

    def _report(self) -> None:
        broken = "; ".join(self._broken.values())
        fix = BUG if any(map(_is_bug, self._broken.values())) else MORE
        self._board.set_health(
            "agent",
            Health(
                Level.DEGRADED if broken else Level.OK,
                reason="job_failed" if broken else None,
                detail=broken or None,
                fix=fix if broken else None,
            ),
        )
