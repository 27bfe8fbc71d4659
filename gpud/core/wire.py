"""Documents that cross a process boundary, decoded into the nouns of core and back.

Shapes: bytes of one JSON document in, a frozen dataclass out. What arrives is not trusted: wrong
types, a foreign schema version, non-finite numbers, reports that contradict themselves and
anything that is not JSON are refused.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gpud.core.errors import WireError
from gpud.core.report import RootReport
from gpud.core.sample import (
    SCHEMA_VERSION,
    Absent,
    Buckets,
    Inventory,
    ProbeSpec,
    Reading,
    RunReport,
    Sample,
)
from gpud.core.stats import LATENCY_BOUNDS_S

Document = TypeVar("Document", RunReport, Inventory, RootReport)

LARGEST_SIZE = 2**53
LARGEST_COUNT = 2**31
"""More than any run can hold; SQLite has no integer beyond 2**63 - 1."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no document of the type asked for."""


class Read(msgspec.Struct, frozen=True):
    """A ``Reading`` as ``gpud.core.sample.plain`` writes it."""

    gpu: int | None
    field: str
    source: str
    value: float | str | None = None
    absent: Absent | None = None
    detail: str | None = None

    def reading(self) -> Reading:
        """Give the noun; neither value nor reason counts as failed."""
        value = self.value if self.value is not None else self.absent or Absent.FAILED
        return Reading(self.gpu, self.field, value, self.source, self.detail)


def decode(text: bytes, kind: type[Document]) -> Document:
    """Read one document of ``kind``.

    Errors: ``WireError`` saying what is wrong with the bytes, never quoting more than 80 of them.
    """
    try:
        document = msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        raise WireError(f"not a {kind.__name__}: {error}; it begins with {text[:80]!r}") from error
    if document.schema_version != SCHEMA_VERSION:
        raise WireError(
            f"a {kind.__name__} of schema {document.schema_version}, not {SCHEMA_VERSION}"
        )
    if isinstance(document, RunReport):
        _refuse_contradictions(document)
    return document


def decode_specs(text: bytes) -> tuple[tuple[ProbeSpec, ...], dict[str, str]]:
    """Read what ``gpud.child --list`` prints: the specs, and the refused modules with reasons."""
    try:
        listing = msgspec.json.decode(text, type=_Listing)
    except UNREADABLE as error:
        raise WireError(f"not a list of probes: {error}") from error
    return listing.probes, listing.refused


def encode(document: object) -> bytes:
    """Write a dataclass or mapping as one JSON document with a newline."""
    return msgspec.json.encode(document, order="deterministic") + b"\n"


class _Listing(msgspec.Struct, frozen=True):
    probes: tuple[ProbeSpec, ...]
    refused: dict[str, str]


def _refuse_contradictions(report: RunReport) -> None:
    """Refuse what has the right types and still cannot be true: it would spoil the history."""
    modes = [sample.mode for sample in report.samples]
    if report.failure is not None and modes:
        raise WireError(f"a failed {report.probe!r:.60} with figures")
    if len(set(modes)) != len(modes):
        raise WireError(f"a {report.probe!r:.60} with one mode twice")
    costs = (report.duration_s, report.gpu_seconds or 0.0)
    taken = (report.vram_peak_bytes or 0, report.pinned_peak_bytes or 0)
    if min(*costs, *taken) < 0 or max(taken) > LARGEST_SIZE:
        raise WireError(f"a {report.probe!r:.60} that cost less than nothing, or too much")
    if any(min(point.n, point.cpu_s, point.gpu_s) <= 0 for point in report.curve):
        raise WireError(f"a {report.probe!r:.60} with a point that took no time")
    for sample in report.samples:
        if trouble := _trouble(sample):
            raise WireError(f"a {report.probe!r:.60} whose {sample.mode!r:.60} {trouble}")


def _trouble(sample: Sample) -> str | None:
    if not 1 <= sample.n <= LARGEST_COUNT:
        return f"counts {sample.n} values"
    figures = (sample.median, sample.p10, sample.p90, sample.p99, sample.minimum, sample.maximum)
    if min(*figures, sample.null_median or 0, sample.null_p99 or 0, sample.p99_net or 0) < 0:
        return "is less than nothing"
    ordered = (sample.minimum, sample.p10, sample.median, sample.p90, sample.p99, sample.maximum)
    if list(ordered) != sorted(ordered):
        return "has quantiles out of order"
    if any(peak.value < 0 or not 0 < peak.share <= 1 for peak in sample.peaks):
        return "has a peak that cannot be one"
    return None if sample.buckets is None else _buckets_trouble(sample.buckets)


def _buckets_trouble(buckets: Buckets) -> str | None:
    if len(buckets.counts) != len(LATENCY_BOUNDS_S) + 1:
        return f"has {len(buckets.counts)} buckets"
    if buckets.total < 0 or not all(0 <= count <= LARGEST_COUNT for count in buckets.counts):
        return "has a bucket that cannot be counted"
    return None
