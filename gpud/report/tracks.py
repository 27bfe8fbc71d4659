"""Which driver was there when, and what each stream brought under it. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from gpud.core.detector import Direction
from gpud.core.stats import quantile
from gpud.report.model import Bin, Level, Stretch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.sample import Unit
    from gpud.report.rows import Column, Moment

MOST_BINS: Final = 180
"""Pieces of a chart: more is finer than a screen, and heavier than a file that one sends."""
WIDTHS_S: Final = (60.0, 600.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0, 604800.0)
SHORTEST_S: Final = 3600.0
"""A chart shows at least so much time."""
MARGIN: Final = 0.02
TENTHS: Final = (0.5, 0.1, 0.9)


def stretches(past: Sequence[Moment]) -> tuple[tuple[Stretch, ...], list[int]]:
    """Part the past by driver; give also the stretch of each moment.

    Unknown is no change, and a driver counts from two runs in a row on: one that is being replaced
    says nonsense once.
    """
    found: list[Stretch] = []
    of: list[int] = []
    for moment, driver in zip(past, _held(past), strict=True):
        if not found or found[-1].driver != driver:
            found.append(Stretch(driver, moment.at_s, moment.at_s, 0))
        last = found[-1]
        found[-1] = replace(
            last,
            since_s=min(last.since_s, moment.at_s),  # the clock may have been set back
            until_s=max(last.until_s, moment.at_s),
            runs=last.runs + moment.runs,
        )
        of.append(len(found) - 1)
    return tuple(found), of


def _held(past: Sequence[Moment]) -> list[str]:
    """Give the driver that held at each moment, "" where none was ever known."""
    known = [place for place, moment in enumerate(past) if moment.driver]
    drivers = ["", *(past[place].driver for place in known), ""]
    told = {
        place: drivers[at]
        for at, place in enumerate(known, start=1)
        if drivers[at] in {drivers[at - 1], drivers[at + 1]} or past[place].runs > 1
    }
    held = next(iter(told.values()), drivers[1])  # of those said once, the first
    found = []
    for place in range(len(past)):
        held = told.get(place, held)
        found.append(held)
    return found


def levels(column: Column, of: Sequence[int]) -> tuple[Level, ...]:
    """Give what a stream brought in each stretch that has clean figures, in order."""
    clean: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    apart: defaultdict[int, int] = defaultdict(int)
    for place, value, weight, marked in zip(
        column.places, column.values, column.weights, column.apart, strict=True
    ):
        if marked:
            apart[of[place]] += 1
        else:
            clean[of[place]].append((value, weight))
    found: list[Level] = []
    for stretch in sorted(clean):
        middle, p10, p90 = spread(clean[stretch])
        n = round(sum(weight for _, weight in clean[stretch]))
        before = found[-1].median if found else None
        slower = None if before is None else slowdown(column.unit, before, middle)
        found.append(Level(stretch, n, middle, p10, p90, apart[stretch], slower))
    return tuple(found)


def slowdown(unit: Unit, before: float, after: float) -> float | None:
    """Give how much slower ``after`` is, 1.12 for 12 %, whatever the unit; None for no ratio."""
    if before <= 0 or after <= 0:
        return None
    return after / before if Direction.of(unit) is Direction.LOWER else before / after


def spread(figures: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Give median, p10 and p90. Shapes: (value, weight)[n], n >= 1, any order."""
    ordered = sorted(figures)
    values = [value for value, _ in ordered]
    if all(weight == 1.0 for _, weight in ordered):
        middle, p10, p90 = (quantile(values, q) for q in TENTHS)
        return middle, p10, p90
    sums = list(accumulate(weight for _, weight in ordered))
    reached = [
        next(value for value, up_to in zip(values, sums, strict=True) if up_to >= q * sums[-1])
        for q in TENTHS
    ]
    return reached[0], reached[1], reached[2]


def beginning(past: Sequence[Moment], since_s: float, until_s: float) -> float:
    """Give where charts begin: a new history is not drawn as a month of nothing."""
    first_s = min((moment.at_s for moment in past), default=until_s)
    shortest_s = min(first_s, until_s - SHORTEST_S)
    return max(since_s, shortest_s - MARGIN * (until_s - shortest_s))


def bin_width_s(since_s: float, until_s: float) -> float:
    """Give how long a piece of a chart is: a round time, and at most ``MOST_BINS`` of them."""
    whole = until_s - since_s
    return next((w for w in WIDTHS_S if whole / w <= MOST_BINS), whole / MOST_BINS)


def bins(column: Column, past: Sequence[Moment], since_s: float, until_s: float) -> tuple[Bin, ...]:
    """Sum a stream up for its chart; pieces without any figure are left out."""
    width_s = bin_width_s(since_s, until_s)
    clean: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    apart: defaultdict[int, list[float]] = defaultdict(list)
    for place, value, weight, marked in zip(
        column.places, column.values, column.weights, column.apart, strict=True
    ):
        piece = int((past[place].at_s - since_s) // width_s)
        if marked:
            apart[piece].append(value)
        else:
            clean[piece].append((value, weight))
    found = []
    for piece in sorted(clean.keys() | apart.keys()):
        at_s = since_s + (piece + 0.5) * width_s
        beside = quantile(sorted(apart[piece]), 0.5) if piece in apart else None
        if piece in clean:
            found.append(Bin(at_s, *spread(clean[piece]), beside))
        else:
            found.append(Bin(at_s, None, None, None, beside))
    return tuple(found)
