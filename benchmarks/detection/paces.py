"""One GPU's figures in hours of use: every minute, every ten minutes, on a laptop, in an old VM.

What happens (power states, other people's work, after three boots of ten too, outages) is drawn in
seconds of use and is the same at every pace; only the moments of the samples differ. A change comes
after ``BEFORE_H`` hours of use and may be found for ``AFTER_H``; a new driver comes with a boot.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.detection.made import FIRST_S, Label, Stream
from benchmarks.detection.score import Score
from benchmarks.detection.worlds import gamma, laplace, student
from gpud.agent.measure.pace import WSL2_BUDGET, YOUNG_ROUND_S, YOUNG_ROUNDS, stretch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
BEFORE_H, AFTER_H, NULL_BEFORE_H, NULL_H = 40.0, 32.0, 80.0, 168.0
SIZES = (0.008, 0.015, 0.03, 0.045)
EFFECTS = (0.08, 0.10, 0.12, 0.15, 0.20, 0.30)
COUNTED = 0.10
"""Smaller changes have a row and are no part of precision and recall."""
DRIFT_H = 6.0
BUSY_BOOTS = 0.3


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When samples are taken. ``boot_h``: hours of use from one start of the machine to the next.

    ``young_s`` is between the first rounds of a boot; from half of ``budget`` on rounds are further
    apart, as ``gpud.agent.measure.pace`` has them.
    """

    spacing_s: float
    boot_h: float = 168.0
    young_s: float | None = None
    budget: int | None = None

    def interval_s(self, rounds: int) -> float:
        """Return the seconds to the next round after so many of this boot."""
        if self.young_s is not None and rounds < YOUNG_ROUNDS:
            return self.young_s
        return self.spacing_s * stretch(self.budget, rounds)

    def moments(self, hours: float, rng: random.Random) -> Iterator[tuple[int, float, float]]:
        """Yield the boot, and use and clock in seconds, of each sample; a boot a day at most."""
        boot_s = self.boot_h * HOUR_S
        for boot in range(math.ceil(hours / self.boot_h)):
            begin_s, at_s, rounds = boot * boot_s, 90.0, 0
            while at_s < min(boot_s, hours * HOUR_S - begin_s):
                yield boot, begin_s + at_s, boot * max(boot_s, DAY_S) + at_s
                rounds += 1
                at_s += self.interval_s(rounds) * rng.uniform(0.9, 1.1)


RHYTHMS = {
    "every minute": Rhythm(60.0),
    "every 10 minutes": Rhythm(600.0),
    "laptop, 8 hours a day": Rhythm(600.0, 8.0, YOUNG_ROUND_S, WSL2_BUDGET),
    "VM that is never restarted": Rhythm(600.0, 168.0, YOUNG_ROUND_S, WSL2_BUDGET),
}


class Change(NamedTuple):
    """What happens: by a driver or not, at once or over hours, and by how much. 0 is no effect."""

    cause: str  # driver, step or drift
    effect: float


NULL = Change("driver", 0.0)
CHANGES = (
    *(Change(cause, effect) for cause in ("driver", "step") for effect in EFFECTS),
    *(Change("drift", effect) for effect in (0.15, 0.30)),
    NULL,
)


class Samples(NamedTuple):
    """The noise of a round of several samples in one context, whose median is the round's.

    ``between`` is the share of a single sample's variance that all samples of a context have in
    common; ``size`` is a single sample's standard deviation.
    """

    count: int
    between: float
    size: float


@dataclass(slots=True)
class Paced:
    """A stream, and the hours of use at each of its samples."""

    stream: Stream
    hours: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Row:
    """Scores of one change at one pace. ``hours``: from change to alarm, inf where missed."""

    score: Score = field(default_factory=Score)
    hours: list[float] = field(default_factory=list)
    used_h: float = 0.0

    def add(self, other: Row) -> None:
        """Take in those of other streams."""
        self.score.add(other.score)
        self.hours += other.hours
        self.used_h += other.used_h

    def delay(self, q: float) -> float:
        """Return a quantile of the delays, inf where more than that are missed."""
        return sorted(self.hours)[max(0, math.ceil(q * len(self.hours)) - 1)]

    @property
    def a_week(self) -> float:
        """False alarms in a week of use."""
        return self.score.false / self.used_h * 168


def row(paced: Paced, score: Score) -> Row:
    """Return what the score of one stream adds."""
    (label,) = paced.stream.labels
    hours = [paced.hours[label.at + delay] - paced.hours[label.at] for delay in score.delays]
    missed = [math.inf] * (label.kind == "regression" and not hours)
    return Row(score, hours + missed, paced.hours[-1])


class Spell(NamedTuple):
    """Something that goes on for a while, in seconds of use; ``size`` is 0 to 1."""

    begin_s: float
    end_s: float
    size: float


def _spells(
    rng: random.Random, hours: float, every_h: float, low_s: float, high_s: float
) -> list[Spell]:
    """Draw spells that come every so many hours of use."""
    found: list[Spell] = []
    at_s = rng.expovariate(1 / (every_h * HOUR_S)) if every_h < math.inf else math.inf
    while at_s < hours * HOUR_S:
        found.append(Spell(at_s, at_s + rng.uniform(low_s, high_s), rng.random()))
        at_s = found[-1].end_s + rng.expovariate(1 / (every_h * HOUR_S))
    return found


def _within(spells: list[Spell], at_s: float) -> Spell | None:
    """Return the spell of a moment; those that are over are dropped."""
    while spells and spells[0].end_s < at_s:
        del spells[0]
    return spells[0] if spells and spells[0].begin_s <= at_s else None


def _normal(rng: random.Random, size: float) -> Callable[[], float]:
    return lambda: rng.gauss(0, size)


def _noise(name: str, samples: Samples | None) -> tuple[float, Callable[[], float]]:
    """Return the size of the noise and a source of it."""
    rng = random.Random(f"{name}, noise")
    law, size = rng.choice((gamma, laplace, student, _normal)), rng.choice(SIZES)
    if samples is None:
        return size, law(rng, size)
    common = law(rng, samples.size * math.sqrt(samples.between))
    own = law(rng, samples.size * math.sqrt(1 - samples.between))
    return samples.size, lambda: common() + median(own() for _ in range(samples.count))


def paced(rhythm: Rhythm, change: Change, name: str, samples: Samples | None = None) -> Paced:
    """Make one stream; the same name gives the same world at every pace."""
    rng = random.Random(name)
    hours, begin_h = (NULL_H, NULL_BEFORE_H) if change == NULL else (BEFORE_H + AFTER_H, BEFORE_H)
    begin_s = begin_h * HOUR_S + (0 if change.cause == "driver" else rng.uniform(0, 4 * HOUR_S))
    size, draw = _noise(name, samples)
    gap = rng.choice((0.0, 0.0, rng.uniform(0.2, 0.6)))
    slow = _spells(rng, hours, rng.uniform(1, 5), 120, 1800)
    load = _spells(rng, hours, rng.choice((math.inf, 6.0, 2.0)), 300, 3600)
    boots = [rng.uniform(0, 1800) if rng.random() < BUSY_BOOTS else 0.0 for _ in range(21)]
    outages = _spells(rng, hours, 48.0, 120, 1200)
    marked, wander, daily = rng.random() < 0.5, rng.choice((0.0, 0.3, 0.6)), rng.choice((0.0, 0.01))
    sign, base = rng.choice((1, 1, -1)), 10 ** rng.uniform(-6, 12)
    stream = Stream(name, "paced", "lower-is-better" if sign > 0 else "higher-is-better")
    made, slid, last_s = Paced(stream), 0.0, 0.0
    for boot, used_s, clock_s in rhythm.moments(hours, rng):
        keep = math.exp(-(used_s - last_s) / (2 * HOUR_S))
        slid, last_s = keep * slid + math.sqrt(1 - keep * keep) * rng.gauss(0, size), used_s
        low, others = _within(slow, used_s) is not None, _within(load, used_s)
        y = draw() + wander * slid + daily * math.sin(2 * math.pi * clock_s / DAY_S) + gap * low
        if others is not None:
            y += (0.1 + 0.5 * others.size) * rng.uniform(0.01, 1)
        if used_s - boot * rhythm.boot_h * HOUR_S < boots[boot]:
            y += rng.uniform(0.05, 0.5)
        y += math.log(10) if _within(outages, used_s) else 0.0
        y += rng.expovariate(2.5) if rng.random() < 0.005 else 0.0
        since_h = (used_s - begin_s) / HOUR_S
        part = min(1.0, max(0.0, since_h / DRIFT_H)) if change.cause == "drift" else since_h >= 0
        y += math.log1p(change.effect) * part
        made.hours.append(used_s / HOUR_S)
        stream.timestamps.append(round(FIRST_S + clock_s, 1))
        stream.values.append(base * math.exp(sign * y))
        stream.context.append("576.02" if change.cause == "driver" and since_h >= 0 else "572.16")
        stream.flags.append("busy" if marked and others is not None else "")
        stream.low.append(low and gap > 0)
    at = next(index for index, used_h in enumerate(made.hours) if used_h * HOUR_S >= begin_s)
    kind, last = ("regression" if change.effect else "null"), len(stream.values) - 1
    ratio = math.exp(sign * math.log1p(change.effect))
    stream.labels.append(Label(kind, change.cause, at, at, at, last, ratio))
    return made


def whole(rows: dict[Change, Row]) -> Row:
    """Add up the changes that count, and those without effect."""
    every = Row()
    for change, of_change in rows.items():
        if change == NULL or change.effect >= COUNTED:
            every.add(of_change)
    return every


def lines(rows: dict[Change, Row]) -> Iterator[str]:
    """Write the rows of one pace."""
    every = whole(rows)
    score = every.score
    yield (
        f"  P {score.precision:.2f}  R {score.recall:.2f}  F1 {score.f1:.2f}  false alarms a week"
        f" of use {every.a_week:.3f}  null {score.null_alarms}/{score.nulls}"
    )
    for change, of_change in rows.items():
        if change.effect:
            found = sum(hours < math.inf for hours in of_change.hours)
            yield (
                f"  {change.cause:<7}{change.effect:+5.0%}  found {found}/{len(of_change.hours)}"
                f"  hours of use: median {of_change.delay(0.5):.1f}  p90 {of_change.delay(0.9):.1f}"
            )
