"""Streams made for judging the detector: every kind of noise, change and disturbance, labelled.

Other noise families and spacings than in the streams it was developed on; some seeds were looked at
on the way, and docs/detector.md says which. One seed makes one set for ever.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EFFECTS = (0.10, 0.13, 0.17, 0.22, 0.30, 0.40)
SCENARIOS = (
    *("null",) * 6,
    *("driver",) * 8,
    *("step",) * 3,
    *("drift",) * 3,
    *("mixed",) * 2,
    "modeshift",
)
SPACINGS_S = (60, 60, 60, 60, 120, 300, 900, 86400)
SPAN = 180
"""Samples after a change within which an alarm finds it; 40 where there is one sample a night."""
SPAN_NIGHTLY = 40
DAY_S = 86400
NIGHTS = 300
"""Streams shorter than this have one sample a night."""
MODESHIFT = 0.2
"""What a label says of a larger share of slow samples, roughly."""
ASLEEP, OUTLIERS = 0.0025, 0.006
VISIT_S = 900.0
LOAD_S = (300.0, 3600.0)
OUTAGE_S = (120.0, 1200.0)
FIRST_S = 1_760_000_000


@dataclass(frozen=True, slots=True)
class Label:
    """One change. ``ratio`` is level after over before, in the unit of the values.

    It lies at ``at``, its maker is sure of ``lo`` to ``hi``, and an alarm up to ``end`` finds it.
    """

    kind: str  # regression, improvement, null, ignore
    cause: str  # driver, step, drift, modeshift; or who labelled it
    lo: int
    at: int
    hi: int
    end: int
    ratio: float


@dataclass(slots=True)
class Stream:
    """What a probe would have stored, and what is known about it."""

    name: str
    part: str  # made, recorded, generated or world
    direction: str
    timestamps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    low: list[bool] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    kinds: tuple[str, ...] = ()  # what it is one of: its source, its noise, its spacing


@dataclass(slots=True)
class _Course:
    """What happens to a stream, sample by sample."""

    worse: list[float]  # added to each logarithm
    share: list[float]  # of samples in the slow state
    drivers: list[str]


def streams(count: int, seed: int) -> Iterator[Stream]:
    """Make ``count`` streams, the same ones for the same seed."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        spacing_s = rng.choice(SPACINGS_S)
        n = rng.randint(120, 220) if spacing_s == DAY_S else rng.randint(900, 1500)
        yield _stream(number, rng, n, spacing_s)


def week(count: int, seed: int) -> Iterator[Stream]:
    """Make ``count`` streams of one sample a minute for seven days."""
    for number in range(count):
        yield _stream(number, random.Random(f"{seed}/{number}"), 7 * 24 * 60, 60)


def _gaussian(rng: random.Random, size: float) -> Callable[[], float]:
    return lambda: rng.gauss(0, size)


def _laplace(rng: random.Random, size: float) -> Callable[[], float]:
    return lambda: rng.expovariate(1 / (0.7 * size)) * rng.choice((-1, 1))


def _skewed(rng: random.Random, size: float) -> Callable[[], float]:
    return lambda: rng.gammavariate(1.5, size / 1.2) - 1.5 * size / 1.2


def _heavy(rng: random.Random, size: float) -> Callable[[], float]:
    # Student's t with three degrees of freedom, from the normal and the chi squared of its name.
    return lambda: 0.6 * size * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3)


def _quantised(rng: random.Random, size: float) -> Callable[[], float]:
    return lambda: size * round(rng.gauss(0, 1.2))


def _clustered(rng: random.Random, size: float) -> Callable[[], float]:
    state = [1.0]

    def draw() -> float:
        state[0] = min(max(state[0] * math.exp(rng.gauss(0, 0.15)), 0.5), 2.5)
        return rng.gauss(0, size * state[0])

    return draw


def _correlated(rng: random.Random, size: float) -> Callable[[], float]:
    rho = rng.choice((0.3, 0.6, 0.85))
    state = [0.0]

    def draw() -> float:
        state[0] = rho * state[0] + rng.gauss(0, size * math.sqrt(1 - rho * rho))
        return state[0]

    return draw


def _wandering(rng: random.Random, size: float) -> Callable[[], float]:
    state = [0.0]

    def draw() -> float:
        state[0] = 0.99 * state[0] + rng.gauss(0, 0.1 * size)
        return state[0] + rng.gauss(0, 0.7 * size)

    return draw


FAMILIES = {
    "gaussian": _gaussian,
    "laplace": _laplace,
    "skewed": _skewed,
    "heavy": _heavy,
    "quantised": _quantised,
    "clustered": _clustered,
    "correlated": _correlated,
    "wandering": _wandering,
}


def _stream(number: int, rng: random.Random, n: int, spacing_s: int) -> Stream:
    family = tuple(FAMILIES)[number % len(FAMILIES)]
    scenario = rng.choice(SCENARIOS)
    if scenario == "modeshift" and spacing_s == DAY_S:
        scenario = "step"  # a share needs some 500 samples, which nobody has of nights
    draw = FAMILIES[family](rng, rng.choice((0.006, 0.012, 0.02, 0.03, 0.045)))
    made = Stream(
        name=f"generated/{number:04d}/{scenario}/{family}/{spacing_s}",
        part="generated",
        direction=rng.choice(("lower-is-better", "higher-is-better")),
        kinds=(f"noise {family}", f"every {spacing_s} s", f"change {scenario}"),
    )
    sign = 1 if made.direction == "lower-is-better" else -1
    course = _course(made, scenario, n, rng)
    gap = rng.uniform(0.2, 0.6) if scenario == "modeshift" or rng.random() < 0.4 else 0.0
    slow = _visits(course.share, gap > 0, spacing_s, rng)
    load = rng.choice(("none", "none", "marked", "unmarked"))
    lifts = _load(n, load != "none", spacing_s, rng)
    outages = _outages(n, spacing_s, rng)
    daily = rng.choice((0, 0, 0.01, 0.02))
    base = rng.choice((6e-6, 1.7e-5, 4.4e-4, 2.1e10, 3.3e11, 57.0))
    at_s = float(FIRST_S + rng.randrange(DAY_S))
    for index in range(n):
        at_s += spacing_s * rng.uniform(0.9, 1.1)
        asleep = spacing_s < DAY_S and rng.random() < ASLEEP
        if asleep:
            at_s += rng.uniform(1800, 40000)
        y = course.worse[index] + gap * slow[index] + draw()
        y += daily * math.sin(2 * math.pi * at_s / DAY_S) + lifts[index] + outages[index]
        if rng.random() < OUTLIERS:
            y += rng.expovariate(2.5)
        busy = load == "marked" and lifts[index] > 0
        made.timestamps.append(round(at_s, 1))
        made.values.append(float(f"{base * math.exp(sign * y):.6g}"))
        made.context.append(course.drivers[index])
        made.flags.append("busy" if busy else "resume" if asleep else "")
        made.low.append(slow[index])
    return made


def _visits(share: list[float], present: bool, spacing_s: int, rng: random.Random) -> list[bool]:  # noqa: FBT001
    """Visit the slow state for a quarter of an hour at a time, so often that the share is right."""
    leave = min(1.0, spacing_s / VISIT_S)
    found, slow = [], False
    for wanted in share:
        if leave == 1:
            slow = present and rng.random() < wanted
        elif rng.random() < (leave if slow else leave * wanted / (1 - wanted)):
            slow = present and not slow
        found.append(slow)
    return found


def _load(n: int, present: bool, spacing_s: int, rng: random.Random) -> list[float]:  # noqa: FBT001
    """Somebody else's work: minutes to an hour in which samples are lifted by random amounts."""
    found, left, lift = [0.0] * n, 0, 0.0
    for index in range(n):
        if left == 0 and present and rng.random() < 0.004 * min(5, spacing_s / 60):
            left, lift = math.ceil(rng.uniform(*LOAD_S) / spacing_s), rng.uniform(0.1, 0.6)
        if left:
            left -= 1
            found[index] = lift * rng.uniform(0.01, 1)
    return found


def _outages(n: int, spacing_s: int, rng: random.Random) -> list[float]:
    """Ten times slower for up to twenty minutes, rarely."""
    found, left = [0.0] * n, 0
    for index in range(n):
        if left == 0 and rng.random() < 0.0004:
            left = math.ceil(rng.uniform(*OUTAGE_S) / spacing_s)
        if left:
            left -= 1
            found[index] = math.log(10) * rng.uniform(0.8, 1)
    return found


def _course(made: Stream, scenario: str, n: int, rng: random.Random) -> _Course:
    """Draw the changes of a scenario and label them. Each has its whole span before the next."""
    course = _Course([0.0] * n, [rng.uniform(0.04, 0.2)] * n, ["560.35"] * n)
    count = {"null": rng.choice((0, 0, 1, 2)), "driver": rng.choice((1, 2)), "mixed": 2}
    places = ([], [rng.uniform(0.3, 0.55)], [rng.uniform(0.25, 0.35), rng.uniform(0.55, 0.6)])
    starts = [int(place * n) for place in places[count.get(scenario, 1)]]
    for turn, (at, nxt) in enumerate(pairwise([*starts, n])):
        cause = scenario if scenario in {"step", "drift", "modeshift"} else "driver"
        if scenario == "mixed" and turn == 1:
            cause = rng.choice(("step", "drift"))
        effect = 0.0 if scenario == "null" else rng.choice(EFFECTS)
        if scenario != "null" and cause == "driver" and rng.random() < 0.3:
            effect = rng.choice((0.0, 0.0, 0.05))
        size = math.log(1 + effect) * (1 if rng.random() < 0.65 else -1)
        made.labels.append(_change(course, made.direction, cause, size, (at, nxt), rng))
    return course


def _change(  # noqa: PLR0913, PLR0917  # one change has that many sides
    course: _Course,
    direction: str,
    cause: str,
    size: float,
    between: tuple[int, int],
    rng: random.Random,
) -> Label:
    at, nxt = between
    n = len(course.worse)
    nightly = n < NIGHTS
    hi = at
    if cause == "driver":
        course.drivers[at:] = [f"56{at}.10"] * (n - at)
    if cause == "modeshift":
        course.share[at:] = [min(share + 0.5, 0.75) for share in course.share[at:]]
        size = MODESHIFT
    else:
        if cause == "drift":
            hi = at + (rng.randint(10, 30) if nightly else rng.randint(100, 180))
        for index in range(at, n):
            course.worse[index] += size * min(1.0, (index - at + 1) / (hi - at + 1))
    kind = "regression" if size > 0 else "improvement"
    if abs(size) < math.log(1.01):
        kind = "null"
    elif abs(size) < math.log(1.09):
        kind = "ignore"
    end = nxt - 1 if kind == "ignore" else min(hi + (SPAN_NIGHTLY if nightly else SPAN), nxt - 1)
    sign = 1 if direction == "lower-is-better" else -1
    return Label(kind, cause, at, at, end if kind == "ignore" else hi, end, math.exp(sign * size))
