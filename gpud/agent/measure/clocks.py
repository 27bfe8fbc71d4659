"""The wall and the monotonic clock: read at one moment, and watched for jumps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from gpud.agent.state.snapshot import after_jump
from gpud.core import clock
from gpud.core.clock import Instant
from gpud.core.sample import Skip

if TYPE_CHECKING:
    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.schedule import Schedule
    from gpud.agent.state.board import Board

TOGETHER_S = 0.001
ATTEMPTS = 5
"""A scheduler that takes the processor away between two readings would look like a jump."""

log = structlog.get_logger()


def now() -> Instant:
    """Read wall and monotonic clock less than a millisecond apart, or as near as it gets."""
    nearest, gap_s = Instant(0.0, 0.0), float("inf")
    for _ in range(ATTEMPTS):
        before_s = time.monotonic()
        wall_s = time.time()
        after_s = time.monotonic()
        if after_s - before_s < gap_s:
            nearest, gap_s = Instant(wall_s, before_s), after_s - before_s
        if gap_s < TOGETHER_S:
            break
    return nearest


def local_min(wall_s: float) -> int:
    """Give the minute of the local day at a Unix time, by the time zone that holds now.

    A travelling laptop changes its zone while the agent runs; libc looks only when told to.
    """
    time.tzset()
    local = time.localtime(wall_s)
    return local.tm_hour * 60 + local.tm_min


class ClockWatch:
    """Compares the clocks between two looks: a pause or a corrected wall clock shows as a jump."""

    def __init__(
        self,
        board: Board,
        schedule: Schedule,
        launcher: Launcher,
        started: Instant,
    ) -> None:
        self._board = board
        self._schedule = schedule
        self._launcher = launcher
        self._before = started

    def look(self, at: Instant) -> None:
        """Publish a jump since the last look; after a large one the GPU and the jobs rest."""
        before, self._before = self._before, at
        offset_s = clock.jumped(before, at, threshold_s=clock.BETWEEN_TICKS_S)
        if offset_s is None:
            return
        log.warning("clock_jumped", offset_s=round(offset_s, 3))
        machine, telemetry = after_jump(self._board.read(), offset_s, at.mono_s)
        self._board.publish(machine=machine, telemetry=telemetry)
        rest_s = clock.rest_s(offset_s)
        if rest_s:
            asleep = offset_s >= clock.ASLEEP_FROM_S
            self._launcher.close_to_gpu_for(rest_s, Skip.RESUMED if asleep else Skip.CLOCK_JUMPED)
        if offset_s > 0 or rest_s:
            self._schedule.after_pause(max(offset_s, 0.0), rest_s=rest_s)
