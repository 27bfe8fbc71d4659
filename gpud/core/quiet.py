"""Quiet hours of the local day, in which only cheap probes run: text in, spans out.

A span is told by the clock on the wall and compared with it, so a day of 23 or 25 hours needs no
rule: an hour that comes twice is quiet twice, one that is left out was never asked about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HOUR_MIN = 60
DAY_MIN = 24 * HOUR_MIN
_SPAN = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
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


def parsed(text: str) -> Span:
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
    return Span(begin_min, end_min)


def quiet(hours: tuple[str, ...], minute: int) -> bool:
    """Say whether any of ``hours`` holds the minute of the local day."""
    return any(parsed(text).holds(minute) for text in hours)
