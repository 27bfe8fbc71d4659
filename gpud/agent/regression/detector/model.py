"""Types of the detector: samples, alarms, verdicts and the state that people are shown.

Ratios are level after over level before in the unit of the values, so 1.1 is 10 % more, good or
bad; ``worse`` says which. Times are Unix seconds as the samples carried them; ``seq`` counts the
samples pushed into one stream, refused ones included, from 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpud.core.sample import Flag, Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Direction(StrEnum):
    """Which way of the unit is the good one."""

    LOWER = "lower-is-better"
    HIGHER = "higher-is-better"

    @property
    def sign(self) -> int:
        """What a logarithm is multiplied with so that bigger is worse."""
        return 1 if self is Direction.LOWER else -1

    @classmethod
    def of(cls, unit: Unit) -> Direction:
        """Give the direction of a probe's unit: of rates more is better, of all else less."""
        rates = {Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND}
        return cls.HIGHER if unit in rates else cls.LOWER


class ChangeKind(StrEnum):
    """What happened to a stream."""

    DRIVER = "driver"  # with the update
    STEP = "step"  # at once, under the same driver
    DRIFT = "drift"  # little by little, under the same driver
    SLOW_STATE = "slow_state"  # more time in the slow power state, each as it was; by any driver


class VerdictState(StrEnum):
    """How far the evaluation of one driver update is."""

    LEARNING = "learning"  # fewer samples than the first look needs
    UNDECIDED = "undecided"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    NO_CHANGE = "no_change"  # none beyond the limit, after the last look
    NONE = "none"  # there will be no verdict; ``why`` says for what reason


class SampleRefusal(StrEnum):
    """Why a sample was not let in at all."""

    NOT_FINITE = "not_finite"
    NOT_POSITIVE = "not_positive"
    BAD_TIME = "bad_time"
    NO_DRIVER = "no_driver"


UNJUDGED = frozenset({Flag.BUSY, Flag.LOW, Flag.COLD, Flag.JUMPED})
"""Flags that keep a sample from being judged; it is kept and shown elsewhere."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One sample of one stream: a value of a probe's mode, and what speaks against it.

    Units: ``value`` in whatever the stream's unit is, always the same one. ``driver`` names
    the context: a generation of versions that may change the figures, such as "g3".
    """

    at_s: float
    value: float
    driver: str
    flags: Collection[Flag] = ()


def refusal(observation: Observation) -> SampleRefusal | None:
    """Say why an observation cannot be let in; None for one that can."""
    if not math.isfinite(observation.at_s):
        return SampleRefusal.BAD_TIME
    if not math.isfinite(observation.value):
        return SampleRefusal.NOT_FINITE
    if observation.value <= 0:
        return SampleRefusal.NOT_POSITIVE
    return None if observation.driver else SampleRefusal.NO_DRIVER


@dataclass(frozen=True, slots=True)
class Effect:
    """How much a level moved. ``low`` to ``high`` holds the ratio nine times in ten, measured."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Alarm:
    """One confirmed change of a level; improvements are alarms too, with ``worse`` False.

    Both drivers are contexts, as ``Observation`` has them; ``Evaluator`` gives them people's names.
    """

    kind: ChangeKind
    worse: bool
    seq: int  # the sample that decided
    at_s: float
    since_seq: int  # the first sample of the new level
    since_s: float
    effect: Effect
    before: float  # the level in the unit of the values
    after: float
    old_driver: str
    new_driver: str
    samples: int  # of the new level, judged
    reference: int  # of the old one
    closes: tuple[int, ...] = ()  # ``seq`` of the open alarms that this return ends

    @property
    def suspect(self) -> bool:
        """Whether a sibling stream should confirm it before a person is woken."""
        return self.kind is not ChangeKind.DRIVER and self.old_driver == self.new_driver


@dataclass(frozen=True, slots=True)
class DriverVerdict:
    """What is known about one driver update. ``effect`` is None until it regressed or improved."""

    state: VerdictState
    old_driver: str
    new_driver: str
    since_s: float
    samples: int  # of the new driver, judged so far
    reference: int  # of the old one
    effect: Effect | None = None
    limit: float | None = None  # a change smaller than this, 0.07 for 7 %, would not be seen
    why: str | None = None


@dataclass(frozen=True, slots=True)
class StreamStanding:
    """How a stream stands. None: not known yet."""

    seen: int
    judged: int
    refused: dict[str, int]  # by ``SampleRefusal``
    set_aside: dict[str, int]  # by ``Flag``, and "settling" for what comes right after a pause
    last_judged_s: float | None
    level: float | None  # median of the present level's reference, in the unit of the values
    slowdown: float | None  # latest samples over the level before all open regressions; >1: worse
    slow_state_ratio: float | None  # share of unused-by-others samples in the slow power state
    open: tuple[Alarm, ...]
    verdict: DriverVerdict | None
    busy_ratio: float | None = None  # share of samples during which others used the GPU
    busy_before_ratio: float | None = None  # that share before it last moved; never an alarm
    busy_since_s: float | None = None  # when it did
    unjudged_since_s: float | None = None  # since then hardly a sample could be judged
    unjudged_for: str | None = None  # what for, in most of them: a ``Flag``, or "settling"
    unit: Unit | None = None  # of the values; a detector alone does not know it


SLACK_S = 3 * 3600.0
"""Between the changes of two streams that have one cause: they are placed that roughly."""


def alike(alarm: Alarm, other: Alarm) -> bool:
    """Say whether two streams changed the same way at about the same time."""
    return (
        alarm.worse is other.worse
        and alarm.since_s <= other.at_s + SLACK_S
        and other.since_s <= alarm.at_s + SLACK_S
    )


def confirmed(alarm: Alarm, siblings: Iterable[Alarm]) -> bool:
    """Say whether streams beside it saw what ``alarm`` tells of.

    An update of the driver does not need it to be explained, but ``gpud.agent.alerts.slowdowns``
    wants it: one stream of thirty is wrong more often than one.
    """
    return not alarm.suspect or any(alike(alarm, sibling) for sibling in siblings)
