"""Streams in the status document: levels, what is usual, changes and verdicts."""

from collections.abc import Mapping

import msgspec

from gpud.document.names import UnitName


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
