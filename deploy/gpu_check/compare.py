"""Which figure of gpud is held against which of the C program, and what comes of it. Pure.

A row is one mode of one probe. Every round gives a ratio, gpud's figure over the reference's; the
median of the ratios is judged. What has no figure has a reason instead, and no ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING

from gpud.child.products import shares

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
    """What a ratio must be: ``within`` of 1 for latencies, ``at_least`` for rates.

    ``within_s``: a latency that differs by less holds too, since a driver's code that the
    interpreter has thrown out of the caches costs the same whatever a launch takes.
    """

    within: float | None = None
    within_s: float = 0.0
    at_least: float | None = None

    def holds(self, ratio: float, difference: float = math.inf) -> bool:
        """Judge one ratio, and a difference in the unit of the figure."""
        if self.within is not None:
            slack = 1e-9  # of rounding
            return abs(ratio - 1) <= self.within + slack or abs(difference) <= self.within_s
        return self.at_least is None or ratio >= self.at_least

    def __str__(self) -> str:
        """Say it in words."""
        if self.within is not None:
            return f"within {self.within:.0%} or {self.within_s * 1e6:g} µs"
        return f"at least {self.at_least:.0%}" if self.at_least is not None else "none"


LATENCY = Target(within=0.03, within_s=0.15e-6)
THROUGHPUT = Target(at_least=0.97)
COPY = Target(at_least=0.95)
PEAK = Target(at_least=0.9)
SINGLE_LIBRARY = Target(at_least=0.8)
TENSOR_LIBRARY = Target(at_least=0.7)
NO_TARGET = Target()


class Against(StrEnum):
    """Whose figure a row is held against."""

    C = "C"
    CUBLAS = "cuBLAS"
    NVBANDWIDTH = "nvbandwidth"
    PEAK = "peak of the GPU's memory"


@dataclass(frozen=True, slots=True)
class Row:
    """One mode and what it is held against; of several ``figures`` the best counts."""

    probe: str  # and the item of the reference program, --only
    mode: str
    figures: tuple[str, ...]
    target: Target = NO_TARGET
    against: Against = Against.C

    @property
    def name(self) -> str:
        """Name it as the table does."""
        beside = "" if self.against is Against.C else f", {self.against}"
        return f"{self.probe}.{self.mode}{beside}"


def _rows(probe: str, modes: Sequence[str], target: Target = NO_TARGET) -> tuple[Row, ...]:
    return tuple(Row(probe, mode, (mode,), target) for mode in modes)


SMALL_COPIES = tuple(
    f"{way}_{size}"
    for way in ("host_to_device", "device_to_host", "round_trip")
    for size in ("4b", "4kib")
)
PINNED = ("host_to_device", "device_to_host")
COPIES = (*PINNED, "both", "pageable_host_to_device", "pageable_device_to_host")

DIRECT = ("to_peer", "from_peer")
ACROSS = (*DIRECT, *(f"staged_{mode}" for mode in DIRECT))
BETWEEN = frozenset({"peer_copy", "small_peer_copy"})
"""Probes that copy between two GPUs."""

ROWS = (
    *_rows("launch", ("submit", "roundtrip", "pipelined"), LATENCY),
    *_rows("launch", ("graph", "submit_cold", "roundtrip_cold", "pipelined_cold")),
    *_rows("sync", ("blocking", "query", "graph_10")),
    *_rows("memory_latency", ("dram", "l2")),
    *_rows("small_copy", SMALL_COPIES),
    *_rows("event", ("pair", "kernel", "record")),
    *_rows("triad", ("triad",), THROUGHPUT),
    Row("triad", "triad", ("peak_bytes_per_second",), PEAK, Against.PEAK),
    *_rows("device_copy", ("device_copy",), COPY),
    *_rows("peer_copy", ACROSS, COPY),
    *_rows("small_peer_copy", tuple(f"{mode}_4b" for mode in ACROSS)),
    *_rows("copy", COPIES, COPY),
    *(Row("copy", mode, (mode,), COPY, Against.NVBANDWIDTH) for mode in PINNED),
    *_rows("nbody", ("nbody",), THROUGHPUT),
    *_rows("matmul", ("matmul",), THROUGHPUT),
    Row("matmul", "matmul", ("matmul_cublas",), SINGLE_LIBRARY, Against.CUBLAS),
    Row("tensor", "tensor", ("tensor", "tensor_wide"), THROUGHPUT),
    Row("tensor", "tensor", ("tensor_cublas",), TENSOR_LIBRARY, Against.CUBLAS),
)


def on(capability: str, row: Row) -> Row:
    """Give the row for a GPU: where cuBLAS has instructions that gpud's kernel has not, a share.

    Such are those that gpud's own runs have a note about.
    """
    newer = bool(shares(capability))
    return replace(row, target=NO_TARGET) if newer and row.target is TENSOR_LIBRARY else row


SIZES: dict[str, tuple[tuple[str, str], ...]] = {
    "triad": (("array_bytes", "--triad-bytes"),),
    "device_copy": (("buffer_bytes", "--device-copy-bytes"),),
    "peer_copy": (("copy_bytes", "--peer-copy-bytes"),),
    "copy": (("copy_bytes", "--copy-bytes"), ("pageable_bytes", "--pageable-bytes")),
    "memory_latency": (("dram_bytes", "--dram-bytes"), ("l2_bytes", "--l2-bytes")),
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
    first: str = "gpud"  # who ran first


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


def judged(row: Row, rounds: Sequence[Round], tool: Mapping[str, float]) -> Judged:
    """Judge one row by its rounds; ``tool`` gives nvbandwidth's figures by mode."""
    turns = [each for each in rounds if each.probe == row.probe]
    ours, theirs, pairs, same, reasons = [], [], [], [], []
    best, unit = "", None
    for turn in turns:
        left = turn.ours.figures.get(row.mode)
        right, name = _theirs(row, turn, tool)
        if turn.same and (figure := turn.same.figures.get(row.figures[0])):
            same.append(figure.median)
        if left is not None:
            ours.append(left.median)
            unit = left.unit
        if right is not None:
            theirs.append(right.median)
            best, unit = name, right.unit
        if left is not None and right is not None and left.median > 0:
            pairs.append((left.median, right.median))
        else:
            reasons.append(_why(row, turn, left, right))
    verdict = _verdict(row, turns, pairs, reasons)
    reason = "; ".join(dict.fromkeys(reasons)) or None
    ratios = tuple(left / right for left, right in pairs)
    return Judged(row, unit, tuple(ours), tuple(theirs), ratios, tuple(same), best, verdict, reason)


def unmatched(specs: Mapping[str, Sequence[str]]) -> list[str]:
    """Name what gpud measures and this program has nothing to hold against.

    ``specs`` gives the modes of each probe.
    """
    known = {(row.probe, row.mode) for row in ROWS}
    return [f"{name}.{m}" for name, modes in specs.items() for m in modes if (name, m) not in known]


def _theirs(row: Row, turn: Round, tool: Mapping[str, float]) -> tuple[Figure | None, str]:
    """Give the figure that gpud's is held against, and what it belongs to."""
    if row.against in {Against.PEAK, Against.NVBANDWIDTH}:
        peak = turn.theirs.conditions.get(row.figures[0])
        value = peak if row.against is Against.PEAK else tool.get(row.mode)
        return (Figure(value, "bytes_per_second", value, value, 1) if value else None), ""
    run = _reference(row, turn)
    figures = [(run.figures[name], name) for name in row.figures if name in run.figures]
    if not figures:
        return None, ""
    figure, name = max(figures, key=lambda pair: pair[0].median)
    return figure, " ".join(filter(None, (name, figure.variant)))


def _reference(row: Row, turn: Round) -> Run:
    """Give the run that a row's figure comes from."""
    return turn.best if row.against is Against.CUBLAS and turn.best else turn.theirs


def _why(row: Row, turn: Round, left: Figure | None, right: Figure | None) -> str:
    if left is None:
        if turn.ours.failure:
            return f"gpud: {turn.ours.failure}"
        return f"gpud: {turn.ours.missing.get(row.mode, 'not measured by gpud')}"
    if right is None:
        run = _reference(row, turn)
        if run.failure:
            return f"{row.against}: {run.failure}"
        gaps = [run.missing[name] for name in row.figures if name in run.missing]
        return f"{row.against}: {gaps[0] if gaps else 'not measured by the reference'}"
    return "gpud: below what its clock can see"


def _verdict(
    row: Row,
    turns: Sequence[Round],
    pairs: Sequence[tuple[float, float]],
    reasons: Sequence[str],
) -> Verdict:
    both = turns and all(
        row.mode in turn.ours.missing and set(row.figures) & set(_reference(row, turn).missing)
        for turn in turns
    )
    if both:
        return Verdict.NOT_OFFERED
    if row.target == NO_TARGET:
        return Verdict.NO_TARGET
    if reasons or not pairs:  # a round that failed is not outvoted by the others
        return Verdict.NOT_MEASURED
    ratio = median(left / right for left, right in pairs)
    difference = median(left - right for left, right in pairs)
    return Verdict.HELD if row.target.holds(ratio, difference) else Verdict.MISSED
