"""Clocks: two moments and the distance between them, quiet hours of a day, back-off.

A paused VM, a resumed laptop and a corrected wall clock all show as wall and monotonic time that
no longer advance together. WSL2 gives no other sign. Pure: moments and jitter come in as values.
"""

from __future__ import annotations

import re

import msgspec

BETWEEN_TICKS_S = 0.5
"""A parting of the clocks smaller than this, between two looks, is ordinary correction.

Some hosts step the clock by 0.35 to 0.4 s every half minute, others pause the machine for seconds.
"""

WITHIN_RUN_S = 0.05  # a larger parting while a probe ran makes its figures worthless

ASLEEP_FROM_S = 30.0
JUMP_FROM_S = 5.0
"""From here on, in either direction, a jump is no correction of the time and no short pause."""
REST_S = 10.0
"""How long nothing is measured after one: the GPU of a machine that wakes is not to be touched."""


class Instant(msgspec.Struct, frozen=True):
    """One moment on both clocks. Units: Unix seconds and CLOCK_MONOTONIC seconds."""

    wall_s: float
    mono_s: float


def jumped(before: Instant, after: Instant, *, threshold_s: float) -> float | None:
    """Say how far the wall clock moved beyond the monotonic one; negative: it was set back.

    None while the clocks agree to ``threshold_s``.
    """
    offset_s = (after.wall_s - before.wall_s) - (after.mono_s - before.mono_s)
    return offset_s if abs(offset_s) > threshold_s else None


def rest_s(offset_s: float) -> float:
    """Say how long to leave a machine alone whose clocks parted by ``offset_s``."""
    return REST_S if abs(offset_s) >= JUMP_FROM_S else 0.0


HOUR_MIN = 60
DAY_MIN = 24 * HOUR_MIN
_SPAN = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII)


class ClockSpan(msgspec.Struct, frozen=True):
    """From ``begin_min`` up to and without ``end_min``, in minutes of the local day.

    One that ends before it begins goes over midnight.
    """

    begin_min: int
    end_min: int

    def holds(self, minute: int) -> bool:
        """Say whether ``minute`` of the local day lies in the span."""
        if self.begin_min < self.end_min:
            return self.begin_min <= minute < self.end_min
        return minute >= self.begin_min or minute < self.end_min


def quiet_span(text: str) -> ClockSpan:
    """Read ``HH:MM-HH:MM``; 24:00 is the end of a day.

    Errors: ``ValueError`` with what it should have been.
    """
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not HH:MM-HH:MM, such as 22:00-07:00")
    begin_h, begin_m, end_h, end_m = map(int, match.groups())
    begin_min, end_min = begin_h * HOUR_MIN + begin_m, end_h * HOUR_MIN + end_m
    if max(begin_m, end_m) >= HOUR_MIN or begin_min >= DAY_MIN or end_min > DAY_MIN:
        raise ValueError(f"{text} names a time that no clock shows")
    if begin_min == end_min:
        raise ValueError(f"{text} begins where it ends; the whole day is 00:00-24:00")
    return ClockSpan(begin_min, end_min)


def quiet(hours: tuple[str, ...], minute: int) -> bool:
    """Say whether any of ``hours`` holds the minute of the local day."""
    return any(quiet_span(text).holds(minute) for text in hours)


JITTER_SHARE = 0.25
"""The part of a delay that the jitter may take away; the cap is therefore never passed."""


class Backoff(msgspec.Struct, frozen=True):
    """Nothing before the first retry, then doubling from ``first_s`` up to ``longest_s``.

    What lived for ``well_after_s`` was well: its end counts as the first failure again.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    well_after_s: float = 30.0

    def failures(self, before: int, lived_s: float) -> int:
        """Count failures in a row, the present one included."""
        return 1 if lived_s >= self.well_after_s else before + 1

    def delay_s(self, failures: int, jitter: float) -> float:
        """Give the wait before the next start; ``jitter`` is in 0..1, ``failures`` from 0."""
        if failures <= 1:
            return 0.0
        full_s = min(self.first_s * 2.0 ** min(failures - 2, 30), self.longest_s)
        return full_s * (1.0 - JITTER_SHARE * jitter)
