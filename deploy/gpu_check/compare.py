"""Which figure of gpud is held against which of the C program, and what comes of it. Pure.

A row is one mode of one probe. Every round gives a ratio, gpud's figure over the reference's; the
median of the ratios is judged. What has no figure has a reason instead, and no ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from .processes import Figure, Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Verdict(StrEnum):
    """What became of a row."""

    HELD = "held"
    MISSED = "missed"
    NOT_MEASURED = "not measured"  # one side, or both, have no figure: see the reason
    NOT_OFFERED = "not offered"  # neither side can do it on this GPU
    NO_TARGET = "no target"


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio must be: ``within`` of 1 for latencies, ``at_least`` for rates."""

    within: float | None = None
    at_least: float | None = None

    def holds(self, ratio: float) -> bool:
        """Judge one ratio."""
        if self.within is not None:
            return 1 - self.within <= ratio <= 1 + self.within
        return self.at_least is None or ratio >= self.at_least

    def __str__(self) -> str:
        """Say it in words."""
        if self.within is not None:
            return f"within {self.within:.0%}"
        return f"at least {self.at_least:.0%}" if self.at_least is not None else "none"


LATENCY = Target(within=0.03)
THROUGHPUT = Target(at_least=0.97)
COPY = Target(at_least=0.95)
NO_TARGET = Target()


@dataclass(frozen=True, slots=True)
class Row:
    """One mode and the figures of the reference it is held against: the best of them counts."""

    probe: str  # and the item of the reference program, --only
    mode: str
    figures: tuple[str, ...]
    target: Target = NO_TARGET


def _rows(probe: str, modes: Sequence[str], target: Target = NO_TARGET) -> tuple[Row, ...]:
    return tuple(Row(probe, mode, (mode,), target) for mode in modes)


SMALL_COPIES = tuple(
    f"{way}_{size}"
    for way in ("host_to_device", "device_to_host", "round_trip")
    for size in ("4b", "4kib")
)
COPIES = ("host_to_device", "device_to_host", "both")
COPIES += ("pageable_host_to_device", "pageable_device_to_host")

ROWS = (
    *_rows("launch", ("submit", "roundtrip"), LATENCY),
    *_rows("launch", ("pipelined", "graph", "submit_cold", "roundtrip_cold", "pipelined_cold")),
    *_rows("small_copy", SMALL_COPIES),
    *_rows("event", ("pair", "kernel", "record")),
    *_rows("triad", ("triad",), THROUGHPUT),
    Row("device_copy", "device_copy", ("device_copy", "device_copy_engine"), COPY),
    *(Row("copy", mode, (mode, f"{mode}_best"), COPY) for mode in COPIES),
    *_rows("nbody", ("nbody",), THROUGHPUT),
    *_rows("matmul", ("matmul",), THROUGHPUT),
    *_rows("tensor", ("tensor",), THROUGHPUT),
)

SIZES: dict[str, tuple[tuple[str, str], ...]] = {
    "triad": (("array_bytes", "--triad-bytes"),),
    "device_copy": (("buffer_bytes", "--device-copy-bytes"),),
    "copy": (("copy_bytes", "--copy-bytes"), ("pageable_bytes", "--pageable-bytes")),
    "nbody": (("bodies", "--bodies"),),
    "matmul": (("n", "--matmul"),),
    "tensor": (("n", "--tensor"),),
}
"""By probe: a condition its run states, and the option that gives the reference that size."""


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of a probe: gpud's run, the reference's, and the reference's of gpud's kernels."""

    probe: str
    ours: Run
    theirs: Run
    same: Run | None = None  # gpud's kernel launched by the C program
    best: Run | None = None  # the reference once more, with cuBLAS


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with what was measured. Units: ``unit``; a ratio is gpud's over the reference's."""

    row: Row
    unit: str | None
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    ratios: tuple[float, ...]
    same: tuple[float, ...]  # gpud's own kernel, launched by the C program
    best: str  # which figure of the reference, or which tool, the ratio is taken of
    verdict: Verdict
    reason: str | None = None

    @property
    def ratio(self) -> float | None:
        """The median of the ratios."""
        return median(self.ratios) if self.ratios else None

    @property
    def good(self) -> bool:
        """Whether it keeps the exit code at 0."""
        return self.verdict not in {Verdict.MISSED, Verdict.NOT_MEASURED}


def judged(row: Row, rounds: Sequence[Round], tools: Mapping[str, Mapping[str, float]]) -> Judged:
    """Judge one row by its rounds; ``tools`` gives other tools' figures by tool and row name."""
    turns = [each for each in rounds if each.probe == row.probe]
    ours, theirs, ratios, same, reasons = [], [], [], [], []
    best, unit = "", None
    for turn in turns:
        left = turn.ours.figures.get(row.mode)
        right, name = _theirs(row, turn.theirs, tools)
        if turn.same and (figure := turn.same.figures.get(row.figures[0])):
            same.append(figure.median)
        if left is not None:
            ours.append(left.median)
            unit = left.unit
        if right is not None:
            theirs.append(right.median)
            best, unit = name, right.unit
        if left is not None and right is not None and left.median > 0:
            ratios.append(left.median / right.median)
        else:
            reasons.append(_why(row, turn, left, right))
    verdict = _verdict(row, turns, ratios, reasons)
    reason = "; ".join(dict.fromkeys(reasons)) or None
    return Judged(
        row, unit, tuple(ours), tuple(theirs), tuple(ratios), tuple(same), best, verdict, reason
    )


def unmatched(specs: Mapping[str, Sequence[str]]) -> list[str]:
    """Name what gpud measures and this program has nothing to hold against.

    ``specs`` gives the modes of each probe.
    """
    known = {(row.probe, row.mode) for row in ROWS}
    return [f"{name}.{m}" for name, modes in specs.items() for m in modes if (name, m) not in known]


def _theirs(
    row: Row, run: Run, tools: Mapping[str, Mapping[str, float]]
) -> tuple[Figure | None, str]:
    """Give the best of what is known: for latencies the C program's, for rates the highest."""
    found = [(run.figures[name], name) for name in row.figures if name in run.figures]
    if not found:
        return None, ""
    if row.target is COPY:  # held against the best tool there is, not only against the C program
        figure = found[0][0]
        for tool, figures in tools.items():
            if value := figures.get(row.mode):
                found.append((Figure(value, figure.unit, value, value, 1), tool))
    figure, name = max(found, key=lambda pair: pair[0].median)
    return figure, " ".join(filter(None, (name, figure.variant)))


def _why(row: Row, turn: Round, left: Figure | None, right: Figure | None) -> str:
    if left is None:
        if turn.ours.failure:
            return f"gpud: {turn.ours.failure}"
        return f"gpud: {turn.ours.missing.get(row.mode, 'not measured by gpud')}"
    if right is None:
        if turn.theirs.failure:
            return f"C: {turn.theirs.failure}"
        gaps = [turn.theirs.missing[name] for name in row.figures if name in turn.theirs.missing]
        return f"C: {gaps[0] if gaps else 'not measured by the reference'}"
    return "gpud: below what its clock can see"


def _verdict(
    row: Row, turns: Sequence[Round], ratios: Sequence[float], reasons: Sequence[str]
) -> Verdict:
    both = turns and all(
        row.mode in turn.ours.missing and set(row.figures) & set(turn.theirs.missing)
        for turn in turns
    )
    if both:
        return Verdict.NOT_OFFERED
    if row.target is NO_TARGET:
        return Verdict.NO_TARGET
    if reasons or not ratios:  # a round that failed is not outvoted by the others
        return Verdict.NOT_MEASURED
    return Verdict.HELD if row.target.holds(median(ratios)) else Verdict.MISSED
