"""Alerts and known faults in the status document."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpud.core.alerts import Cause

SEEN: Final = "seen"
"""State of a fault that left its trace on this machine; the others are of its versions alone."""


class StreamName(msgspec.Struct, frozen=True):
    """Name of one stream; ``gpu`` is a UUID, None for the CPU."""

    gpu: str | None
    probe: str
    mode: str
    version: int = 1
    on_battery: bool = False
    peer: str | None = None


class EvidenceReport(msgspec.Struct, frozen=True):
    """What one stream showed. Values in ``unit``; ``slowdown`` is 1.12 for 12 % slower."""

    stream: StreamName
    unit: str
    kind: str
    before: float
    after: float
    slowdown: float
    low: float
    high: float
    samples: int
    reference: int
    since_s: float
    seq: int


class AlertReport(msgspec.Struct, frozen=True):
    """An alert; ``ends_s`` is None while it fires; ``labels`` and ``name`` identify it.

    ``summary`` is one sentence; ``description`` has the evidence line by line and what to do. Both
    may quote foreign strings. ``causes``: the most likely first. ``runbook`` is a path below gpud's
    own address.
    """

    name: str
    severity: str = ""
    summary: str = ""
    fingerprint: str = ""
    starts_s: float = 0.0
    updated_s: float = 0.0
    firing: bool = True
    ends_s: float | None = None
    description: str = ""
    labels: Mapping[str, str] = {}
    evidence: tuple[EvidenceReport, ...] = ()
    causes: tuple[Cause, ...] = ()
    fix: str | None = None
    acknowledged_s: float | None = None
    annotations: Mapping[str, str] = {}
    runbook: str = ""

    @property
    def began_s(self) -> float:
        """When the change behind it began; the alert comes later."""
        return min([self.starts_s, *(piece.since_s for piece in self.evidence)])


class FaultReport(msgspec.Struct, frozen=True):
    """A known fault, of docs/known-issues.md, that was seen here or is of this machine's versions.

    ``state``: "seen", "applies" (the versions are within its bounds) or "reported" (somebody met it
    on these versions). ``alarm``: it was seen together with a GPU call that failed or stalled.
    ``evidence`` quotes the kernel or a driver; ``count`` and ``at_s`` (the last) are of its traces.
    """

    id: str
    state: str = ""
    effect: str = ""
    title: str = ""
    fix: str | None = None
    source: str = ""
    confidence: str = ""
    evidence: str | None = None
    at_s: float | None = None
    count: int = 0
    alarm: bool = False
