"""Runs in the status document: the last of each probe, those put off, and their streams."""

from collections.abc import Mapping

import msgspec

from gpud.core.sample import Condition
from gpud.core.stats import human
from gpud.document.machine import (
    BackendName,
    FailureReport,
    FlagName,
    ReasonName,
    SkipName,
    UnitName,
)


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
            f"{human(peak.value, self.unit, self.mode)} ({100 * peak.share:.0f} %)"
            for peak in self.peaks
        ]


class RunFailure(FailureReport, frozen=True):
    """A failed run. ``severity``: info, warning or critical."""

    severity: str = ""


class LastRun(msgspec.Struct, frozen=True):
    """The last run of one probe on one GPU: figures, or a failure and no figures.

    ``old``: three more should have followed, and it does not stand for now.
    """

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
    old: bool = False

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


class EffectReport(msgspec.Struct, frozen=True):
    """A change of level; the interval holds it nine times in ten.

    Of a rate 0.9 is 11 % more time. ``slowdown``, ``least`` and ``most`` are of the time.
    """

    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def slowdown(self) -> float:
        """The effect as a time, never below 1."""
        return max(self.ratio, 1 / self.ratio)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval as a time, the lower end first."""
        low, high = sorted((self.low, self.high))
        return (low, high) if self.ratio > 1 else (1 / high, 1 / low)


class AlarmReport(msgspec.Struct, frozen=True):
    """A change for the worse that still holds. ``at_s``: when it was decided.

    ``before`` and ``after`` are levels in the unit of the stream; ``seq`` numbers its samples.
    """

    kind: str = ""
    worse: bool = True
    seq: int = 0
    at_s: float | None = None
    since_seq: int = 0
    since_s: float = 0.0
    effect: EffectReport = EffectReport()
    before: float = 0.0
    after: float = 0.0
    old_driver: str = ""
    new_driver: str = ""
    samples: int = 0
    reference: int = 0
    closes: tuple[int, ...] = ()


class VerdictReport(msgspec.Struct, frozen=True):
    """The verdict on the newest driver. ``limit``: of what can be seen, 0.03 for 3 %."""

    state: str
    old_driver: str = ""
    new_driver: str = ""
    since_s: float = 0.0
    samples: int = 0
    reference: int = 0
    effect: EffectReport | None = None
    limit: float | None = None
    why: str | None = None


class StreamReport(msgspec.Struct, frozen=True):
    """A GPU, probe and mode over time, beside what is usual. None: not known yet.

    ``usual`` and ``level`` are in ``unit``; ``slowdown`` is 1.25 for 25 % slower. Counts are of
    samples: ``seen``, ``judged``, and by the reason why they were ``refused`` or ``set_aside``.
    """

    seen: int = 0
    judged: int = 0
    refused: Mapping[str, int] = {}
    set_aside: Mapping[str, int] = {}
    last_judged_s: float | None = None
    level: float | None = None
    slowdown: float | None = None
    slow_state_ratio: float | None = None
    open: tuple[AlarmReport, ...] = ()
    verdict: VerdictReport | None = None
    busy_ratio: float | None = None
    busy_before_ratio: float | None = None
    busy_since_s: float | None = None
    unjudged_since_s: float | None = None
    unjudged_for: str | None = None
    gpu: int | None = None
    uuid: str | None = None
    probe: str = ""
    mode: str = ""
    version: int = 1
    on_battery: bool = False
    unit: UnitName | None = None
    usual: float | None = None
