"""The one broad ``except`` of the agent: what a job or a task throws is logged, counted, shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import structlog

from gpud.agent.state.events import Event, HealthSet
from gpud.core.health import Level

REST_S: Final = 5.0
"""Before a task that failed is begun again."""
WELL_S: Final = 60.0
"""A task that was begun again and goes on for so long is well."""
Work: TypeAlias = Callable[[], Awaitable[None]]

log = structlog.get_logger()


class Boundary:
    """Health is that of all jobs together: one that is well again does not hide another."""

    def __init__(
        self, post: Callable[[Event], None], *, rest_s: float = REST_S, well_s: float = WELL_S
    ) -> None:
        self._post = post
        self._rest_s = rest_s
        self._well_s = well_s
        self._broken: dict[str, str] = {}
        self._said = False

    def job(self, name: str, work: Work) -> Work:
        """Guard a scheduled job: it is tried again at its next appointment."""

        async def once() -> None:
            try:
                await work()
            except Exception as error:
                log.exception("job_failed", job=name)
                self._failed(name, error)
            else:
                self._well(name)

        return once

    async def task(self, name: str, work: Work) -> None:
        """Guard a task that should never end: it is begun again after a rest."""
        loop = asyncio.get_running_loop()
        while True:
            held = loop.call_later(self._well_s, self._well, name)
            try:
                await work()
            except Exception as error:
                log.exception("task_failed", task=name)
                self._failed(name, error)
            else:
                return
            finally:
                held.cancel()
            await asyncio.sleep(self._rest_s)

    def _failed(self, name: str, error: Exception) -> None:
        self._broken[name] = f"{name}: {type(error).__name__}: {error}"
        self._say()

    def _well(self, name: str) -> None:
        if self._broken.pop(name, None) is not None or not self._said:
            self._say()

    def _say(self) -> None:
        self._said = True
        broken = "; ".join(self._broken.values())
        self._post(
            HealthSet(
                "agent",
                Level.DEGRADED if broken else Level.OK,
                time.time(),
                reason="job_failed" if broken else None,
                detail=broken or None,
                fix="this is a bug in gpud; the log has its traceback" if broken else None,
            )
        )
