"""Alerts: one per cause, with the evidence of every stream that it moved.

A detector's alarm is of one stream; an alert gathers the alarms of one cause, or tells of something
that no longer works. The words are Alertmanager's: name, labels, fingerprint, starts, ends, firing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpud.core.streams import StreamKey

RUNBOOKS: Final = "/runbooks"
"""Below gpud's own address: docs/runbooks has a page by the name of each alert."""
SHORT: Final = 8
"""Digits of a fingerprint that people are shown: an alert's ID."""
DRIVER_REGRESSION: Final = "GpudDriverRegression"  # slower since a driver was replaced
SLOWDOWN: Final = "GpudSlowdown"  # slower under the same driver: step, drift, slow_state
FUNCTION_LOST: Final = "GpudFunctionLost"  # worked, and fails now
UNWELL: Final = "GpudUnwell"  # a component's health is FAILED and stays so
SINK_FAILING: Final = "GpudSinkFailing"
TEST: Final = "GpudTest"  # `gpud alerts test SINK`


class Severity(StrEnum):
    """How soon somebody should look."""

    CRITICAL = "critical"  # now
    WARNING = "warning"  # this week
    INFO = "info"  # nobody is woken


class Evidence(msgspec.Struct, frozen=True):
    """What one stream showed. Values in ``unit``.

    ``slowdown`` is 1.12 for 12 % slower, whatever the unit; ``low`` to ``high`` holds it nine times
    in ten.
    """

    stream: StreamKey
    unit: str  # a ``Unit``
    kind: str  # a ``detector.ChangeKind``
    before: float
    after: float
    slowdown: float
    low: float
    high: float
    samples: int  # of the new level
    reference: int  # of the old one
    since_s: float  # Unix time
    seq: int  # the stream's sample that decided


class Cause(msgspec.Struct, frozen=True):
    """Something that became another when the figures did: "driver", "572.16", "576.02"."""

    kind: str
    old: str | None = None
    new: str | None = None
    detail: str | None = None  # in words, where there is more to say


class Alert(msgspec.Struct, frozen=True):
    """One thing to tell. Times are Unix seconds; ``ends_s`` is None while it fires.

    ``summary`` is one plain sentence that says what and how much; ``description`` has the evidence
    line by line and what to do. Both may quote foreign strings and are escaped where shown.
    """

    name: str
    severity: Severity
    labels: Mapping[str, str]  # without name and severity; together with the name they identify it
    summary: str
    description: str
    starts_s: float
    updated_s: float
    ends_s: float | None = None
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()  # the most likely first
    fix: str | None = None
    acknowledged_s: float | None = None  # a person said: seen, no more reminders

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, the same for the same name and labels in any process."""
        import hashlib  # loads all of OpenSSL

        named = [("alertname", self.name), *sorted(self.labels.items())]
        text = "".join(f"{name}\xff{value}\xff" for name, value in named)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    @property
    def firing(self) -> bool:
        """Whether it is still so."""
        return self.ends_s is None

    @property
    def runbook(self) -> str:
        """The path of the page that says what it means and what to do."""
        return f"{RUNBOOKS}/{self.name}"


class SinkState(msgspec.Struct, frozen=True):
    """How one way of telling people is. Counters count since the agent started."""

    sent: int = 0
    failed: int = 0
    reason: str | None = None  # of the last failure; None once one was delivered again
    detail: str | None = None
    fix: str | None = None
    last_success_s: float | None = None
