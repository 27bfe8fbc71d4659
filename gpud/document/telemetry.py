"""Telemetry in the status document: readings and the sources they come from."""

from collections.abc import Mapping

import msgspec

from gpud.core.health import words_of
from gpud.document.names import AbsentName


class SourceReport(msgspec.Struct, frozen=True):
    """The last answer of a source of telemetry; ``failures`` are counts by reason."""

    level: int = 0
    up: bool = False
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None
    taken_s: float | None = None
    duration_s: float | None = None
    last_success_s: float | None = None
    failures: Mapping[str, int] = {}

    @property
    def why(self) -> str:
        """The reason in words; empty if there is none."""
        return words_of(self.reason, self.detail)


class ReadingReport(msgspec.Struct, frozen=True):
    """One field of telemetry: a value, or the reason why there is none."""

    gpu: int | None = None
    field: str = ""
    source: str = ""
    value: float | str | None = None
    absent: AbsentName | None = None
    detail: str | None = None


class TelemetryReport(msgspec.Struct, frozen=True):
    """Readings and sources. ``level`` names how good the best source is, ``taken_s`` its moment."""

    level: str = ""
    taken_s: float | None = None
    sources: Mapping[str, SourceReport] = {}
    readings: tuple[ReadingReport, ...] = ()
    program_starts: Mapping[str, int] = {}
