"""Worlds nobody chose a number of the detector on: each has its own noise, rhythm and changes.

``made`` mixes everything; here each world is of one kind, so that a figure says where it fails. A
change keeps its span for three hours or 180 samples, whichever is longer, 40 nights where there is
one sample a night, and has that much room before the next.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.detection.made import DAY_S, FIRST_S, SPAN, SPAN_NIGHTLY, Label, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPAN_S = 3 * 3600
USUAL = (0.10, 0.13, 0.18, 0.25, 0.35)
HOURS_S = (1800.0, 9000.0)
"""Of a laptop's session; what is between two is up to a night."""


def gamma(rng: random.Random, size: float) -> Callable[[], float]:
    """Draw skewed noise."""
    shape = rng.choice((1.0, 2.0, 4.0))
    scale = size / math.sqrt(shape)
    return lambda: rng.gammavariate(shape, scale) - shape * scale


def laplace(rng: random.Random, size: float) -> Callable[[], float]:
    """Draw noise with heavy tails."""
    return lambda: rng.expovariate(math.sqrt(2) / size) * rng.choice((-1, 1))


def student(rng: random.Random, size: float) -> Callable[[], float]:
    """Draw noise with heavier tails."""

    def draw() -> float:
        chi = rng.gammavariate(1.5, 2.0)  # three degrees of freedom
        return 0.6 * size * rng.gauss(0, 1) / math.sqrt(chi / 3)

    return draw


def _second_order(rng: random.Random, size: float) -> Callable[[], float]:
    """Remember two samples: a fan that hunts, with a period of ten to forty samples."""
    period, damping = rng.uniform(10, 40), rng.uniform(0.85, 0.95)
    first, second = 2 * damping * math.cos(2 * math.pi / period), -(damping**2)
    past = [0.0, 0.0]

    def draw() -> float:
        value = first * past[0] + second * past[1] + rng.gauss(0, 0.4 * size)
        past[:] = [value, past[0]]
        return value

    return draw


def _moving_mean(rng: random.Random, size: float) -> Callable[[], float]:
    width = rng.randint(3, 25)
    last = [rng.gauss(0, size) for _ in range(width)]

    def draw() -> float:
        last.pop(0)
        last.append(rng.gauss(0, size))
        return sum(last) / math.sqrt(width)

    return draw


def _ticks(rng: random.Random, size: float) -> Callable[[], float]:
    """Draw normal noise that a coarse clock rounds to whole ticks of 0.5 to 2 %."""
    tick = rng.choice((0.005, 0.01, 0.02))
    return lambda: round(rng.gauss(0, size) / tick) * tick


def _still(rng: random.Random, size: float) -> Callable[[], float]:
    """Give the same value nearly always."""
    return lambda: rng.gauss(0, size) if rng.random() < 0.1 else 0.0


@dataclass(frozen=True, slots=True)
class World:
    """How streams of one kind come about."""

    noises: tuple[Callable[[random.Random, float], Callable[[], float]], ...]
    sizes: tuple[float, ...] = (0.008, 0.015, 0.03)
    spacings_s: tuple[int, ...] = (60,)
    length: tuple[int, int] = (900, 1500)
    causes: tuple[str, ...] = ("null", "null", "driver", "driver", "driver", "step", "drift")
    effects: tuple[float, ...] = USUAL
    states: tuple[float, ...] = ()  # how far above the usual one the slow states lie
    daily: tuple[float, ...] = (0.0,)  # height of what a working day adds
    sessions: bool = False  # used for hours, then asleep
    wider: tuple[float, ...] = (1.0,)  # how much wider the noise is after a change


WORLDS = {
    "gamma, working days": World(
        noises=(gamma,), daily=(0.0, 0.02, 0.05, 0.10), length=(2000, 3500)
    ),
    "Laplace, three states": World(
        noises=(laplace,),
        states=(0.12, 0.45),
        causes=("null", "null", "driver", "driver", "step", "drift", "share"),
    ),
    "Student, remembering": World(noises=(student, _second_order, _moving_mean)),
    "ticks, every 15 minutes": World(
        noises=(_ticks, _still), spacings_s=(900,), states=(0.3,), length=(500, 900)
    ),
    "every 10 seconds": World(
        noises=(gamma, laplace, _second_order), spacings_s=(10,), length=(4000, 6000)
    ),
    "nightly": World(noises=(gamma, laplace, student), spacings_s=(DAY_S,), length=(120, 220)),
    "sessions of a laptop": World(noises=(gamma, _moving_mean), sessions=True),
    "tiny and huge": World(
        noises=(laplace, student, _moving_mean),
        effects=(0.02, 0.04, 0.6, 1.5, 4.0, 9.0),
        wider=(0.5, 1.0, 2.0, 3.0),
    ),
    "drifts": World(
        noises=(gamma, student),
        spacings_s=(60, 120, 300),
        causes=("null", "drift", "drift", "drift"),
        effects=(0.15, 0.2, 0.3, 0.5),
    ),
}
SHAPES = ("line", "fast, then slow", "slow, then fast", "steps")


@dataclass(slots=True)
class _Course:
    worse: list[float]
    share: list[float]
    wide: list[float]
    drivers: list[str]
    labels: list[Label] = field(default_factory=list)


def worlds(name: str, count: int, seed: int, spacing_s: int | None = None) -> Iterator[Stream]:
    """Make ``count`` streams of a world, the same ones for the same seed and spacing."""
    world = WORLDS[name]
    if spacing_s is not None:
        world = replace(world, spacings_s=(spacing_s,))
    for number in range(count):
        yield _stream(f"{name}/{seed}/{number}", world)


def _stream(name: str, world: World) -> Stream:
    rng = random.Random(name)
    spacing_s = rng.choice(world.spacings_s)
    n = rng.randint(*world.length)
    cause = rng.choice(world.causes)
    made = Stream(
        f"{name}/{cause}",
        "world",
        rng.choice(("lower-is-better", "higher-is-better")),
        kinds=(f"change {cause}",),
    )
    sign = 1 if made.direction == "lower-is-better" else -1
    course = _course(world, cause, n, spacing_s, sign, rng)
    made.labels = course.labels
    draw = rng.choice(world.noises)(rng, rng.choice(world.sizes))
    states = _states(world.states, course.share, spacing_s, rng)
    daily, base = rng.choice(world.daily), 10 ** rng.uniform(-6, 12)
    at_s, left_s = float(FIRST_S + rng.randrange(DAY_S)), rng.uniform(*HOURS_S)
    for index in range(n):
        step_s = spacing_s * rng.uniform(0.95, 1.05)
        left_s -= step_s
        asleep = left_s < 0 if world.sessions else spacing_s < DAY_S and rng.random() < 0.0015
        if asleep:
            step_s += rng.uniform(3600, 50000)
            left_s = rng.uniform(*HOURS_S)
        at_s += step_s
        y = course.worse[index] + states[index] + course.wide[index] * draw()
        y += daily * max(0.0, math.sin(2 * math.pi * at_s / DAY_S))
        if rng.random() < 0.005:
            y += rng.expovariate(2)
        made.timestamps.append(round(at_s, 1))
        made.values.append(float(f"{base * math.exp(sign * y):.6g}"))
        made.context.append(course.drivers[index])
        made.flags.append("resume" if asleep else "")
        made.low.append(states[index] > 0)
    return made


def _states(
    heights: tuple[float, ...], share: list[float], spacing_s: int, rng: random.Random
) -> list[float]:
    """Choose a state anew every ten minutes or so, a slow one so often that the share is right."""
    stay = math.exp(-spacing_s / 600)
    found, height = [], 0.0
    for wanted in share:
        if heights and rng.random() > stay:
            height = rng.choice(heights) if rng.random() < wanted else 0.0
        found.append(height)
    return found


def _course(  # noqa: PLR0913, PLR0917  # one course has that many sides
    world: World, cause: str, n: int, spacing_s: int, sign: int, rng: random.Random
) -> _Course:
    """Draw one or two changes with room for the span of each, and label them."""
    course = _Course([0.0] * n, [rng.uniform(0.08, 0.2)] * n, [1.0] * n, ["560.35"] * n)
    span = SPAN_NIGHTLY if spacing_s == DAY_S else max(SPAN, SPAN_S // spacing_s)
    starts = [int(rng.uniform(0.4, 0.5) * n)]
    if cause in {"null", "driver"} and rng.random() < 0.5:
        starts = [int(0.35 * n), int(0.65 * n)]
    for at, nxt in zip(starts, [*starts[1:], n], strict=True):
        effect = 0.0 if cause == "null" else rng.choice(world.effects)
        size = math.log(1 + effect) * (1 if rng.random() < 0.65 else -1)
        hi = at
        if cause in {"null", "driver"}:
            course.drivers[at:] = [f"56{at}.10"] * (n - at)
            course.wide[at:] = [rng.choice(world.wider)] * (n - at)
        if cause == "share":
            course.share[at:] = [min(0.75, course.share[at] + 0.5)] * (n - at)
            size = 0.5 * sum(world.states) / len(world.states)
        elif cause == "drift":
            hi = at + (rng.randint(10, 30) if spacing_s == DAY_S else rng.randint(60, 240))
            _slide(course.worse, at, hi, size, rng.choice(SHAPES))
        else:
            course.worse[at:] = [y + size for y in course.worse[at:]]
        kind = "regression" if size > 0 else "improvement"
        if abs(size) < math.log(1.09):
            kind = "ignore" if size else "null"
        end = nxt - 1 if kind == "ignore" else min(hi + span, nxt - 1)
        told = end if kind == "ignore" else hi
        course.labels.append(Label(kind, cause, at, at, told, end, math.exp(sign * size)))
    return course


def _slide(worse: list[float], at: int, hi: int, size: float, shape: str) -> None:
    for index in range(at, len(worse)):
        part = min(1.0, (index - at + 1) / (hi - at + 1))
        if shape == "fast, then slow":
            part = math.sqrt(part)
        elif shape == "slow, then fast":
            part *= part
        elif shape == "steps":
            part = math.ceil(4 * part) / 4
        worse[index] += size * part
