"""Runs in the status document: the last of each probe, those put off, and past medians."""

from collections.abc import Mapping

import msgspec

from gpud.core.sample import Condition
from gpud.core.stats import human
from gpud.document.machine import FailureReport
from gpud.document.names import BackendName, FlagName, ReasonName, SkipName, UnitName


class MissingMode(msgspec.Struct, frozen=True):
    """A mode that this machine cannot offer; the rest of the run is still good."""

    mode: str = ""
    reason: ReasonName = ""
    detail: str = ""


class PeakReport(msgspec.Struct, frozen=True):
    """One of several humps of a distribution. ``value`` is its median, ``share`` in 0..1."""

    value: float
    share: float


class PointReport(msgspec.Struct, frozen=True):
    """What one size cost on either side. Units: seconds; ``n`` is the side of a square matrix."""

    n: int
    cpu_s: float
    gpu_s: float


class Figures(msgspec.Struct, frozen=True):
    """One mode of a run. Units: figures are in ``unit``; the null figures are the empty call's."""

    mode: str
    unit: UnitName = ""
    n: int = 0
    median: float = 0.0
    p10: float | None = None
    p90: float | None = None
    p99: float | None = None
    minimum: float = 0.0
    maximum: float = 0.0
    null_median: float | None = None
    null_p99: float | None = None
    peaks: tuple[PeakReport, ...] = ()
    p99_net: float | None = None

    @property
    def value(self) -> float:
        """The median, or that of the hump with the larger share: between two lies nothing."""
        if not self.peaks:
            return self.median
        return max(self.peaks, key=lambda peak: peak.share).value

    @property
    def humps(self) -> list[str]:
        """The median in words, or each of two humps with its share."""
        if not self.peaks:
            return [human(self.median, self.unit, self.mode)]
        return [
            f"{human(peak.value, self.unit, self.mode)} ({peak.share:.0%})" for peak in self.peaks
        ]


class RunFailure(FailureReport, frozen=True):
    """A failed run. ``severity``: warning, error or critical, as alerts have it."""

    severity: str = ""


class LastRun(msgspec.Struct, frozen=True):
    """The last run of one probe on one GPU: figures, or a failure and no figures."""

    probe: str
    gpu: int | None = None
    backend: BackendName = ""
    last_success_s: float | None = None
    duration_s: float | None = None
    failure: RunFailure | None = None
    missing: tuple[MissingMode, ...] = ()
    conditions: Mapping[str, Condition] = {}
    flags: tuple[FlagName, ...] = ()
    curve: tuple[PointReport, ...] = ()
    samples: tuple[Figures, ...] = ()

    @property
    def on_battery(self) -> bool:
        """Whether the run ended without mains."""
        return self.conditions.get("after.ac") is False


class PutOff(msgspec.Struct, frozen=True):
    """How often in a row a probe was skipped, the last time for ``reason``.

    ``starving``: for too long. The GPU was used by others, where it was busy, by the ratio.
    ``next_s``: Unix time of the next attempt, where it is not that of the next round.
    """

    count: int = 0
    reason: SkipName = ""
    starving: bool = False
    utilization_gpu_ratio: float | None = None
    next_s: float | None = None


class SkippedProbe(PutOff, frozen=True):
    """A probe that is skipped, and how often in a row."""

    probe: str = ""
    gpu: int | None = None


class RecentSeries(msgspec.Struct, frozen=True):
    """The latest clean medians of one series, the oldest first, to four digits.

    ``after_s`` counts from ``from_s``.
    """

    uuid: str | None = None
    probe: str = ""
    mode: str = ""
    unit: UnitName = ""
    from_s: float = 0.0
    after_s: tuple[int, ...] = ()
    medians: tuple[float, ...] = ()
