"""A latency distribution as lines for a terminal: one bar per bucket, logarithmic in its count.

Logarithmic because a tail of three calls in four thousand is what one looks for, and a linear bar
of it has no length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpud.core.stats import LATENCY_BOUNDS_S, human

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.sample import Buckets

EIGHTHS = " ▏▎▍▌▋▊▉█"
FULL = EIGHTHS[-1]
ASCII_FULL = "#"
NARROWEST = 40
LABEL_WIDTH = 10
COUNT_WIDTH = 7
SHARE_WIDTH = 8
SMALLEST_PERCENT = 0.1
GAP = 3
"""So many empty buckets in a row, or more, become one line that says so."""


def drawn(buckets: Buckets, *, width: int = 80, ascii_only: bool = False) -> tuple[str, ...]:
    """Draw the buckets from the first that holds anything to the last, in rows of ``width``.

    A row is the bucket's upper bound, the bar, the count and its share. Bars are as long as the
    logarithm of the count: the fullest bucket fills the room, and no bucket that holds a call goes
    without a mark. Gives no rows for an empty distribution.
    """
    held = [index for index, count in enumerate(buckets.counts) if count]
    if not held:
        return ()
    first, last = held[0], held[-1]
    room = max(width, NARROWEST) - LABEL_WIDTH - COUNT_WIDTH - SHARE_WIDTH - len("  ")
    return tuple(_rows(buckets, range(first, last + 1), room, ascii_only=ascii_only))


def _rows(buckets: Buckets, shown: range, room: int, *, ascii_only: bool) -> Iterator[str]:
    total, most = sum(buckets.counts), max(buckets.counts)
    at_most = "<=" if ascii_only else "≤"
    empty: list[int] = []
    for index in shown:
        count = buckets.counts[index]
        if not count:
            empty.append(index)
            continue
        if len(empty) >= GAP:
            yield f"{'...':>{LABEL_WIDTH}}  ({len(empty)} empty)"
        else:
            yield from (_label(skipped, at_most, ascii_only=ascii_only) for skipped in empty)
        empty.clear()
        percent = 100 * count / total
        share = f"{percent:.1f} %" if percent >= SMALLEST_PERCENT else f"<{SMALLEST_PERCENT:g} %"
        bar = _bar(count, most, room, ascii_only=ascii_only)
        label = _label(index, at_most, ascii_only=ascii_only)
        yield f"{label}  {bar:<{room}}{count:>{COUNT_WIDTH}}{share:>{SHARE_WIDTH}}"


def _label(index: int, at_most: str, *, ascii_only: bool) -> str:
    if index == len(LATENCY_BOUNDS_S):
        bound = human(LATENCY_BOUNDS_S[-1], "seconds")
        text = f"> {bound}"
    else:
        text = f"{at_most} {human(LATENCY_BOUNDS_S[index], 'seconds')}"
    if ascii_only:
        text = text.replace("µ", "u")
    return f"{text:>{LABEL_WIDTH}}"


def _bar(count: int, most: int, room: int, *, ascii_only: bool) -> str:
    length = room * math.log1p(count) / math.log1p(most)
    if ascii_only:
        return ASCII_FULL * max(1, min(room, round(length)))
    eighths = max(1, min(8 * room, round(8 * length)))
    whole, part = divmod(eighths, 8)
    return FULL * whole + (EIGHTHS[part] if part else "")
