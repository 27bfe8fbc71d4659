"""Alerts and known faults in the status document."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpud.core.alerts import Cause, Evidence

SEEN: Final = "seen"
"""State of a fault that left its trace on this machine; the others are of its versions alone."""


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
    evidence: tuple[Evidence, ...] = ()
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
    on these versions). ``alarm``: it was seen when GPU calls began to fail that fail now.
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
