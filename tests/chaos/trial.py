"""Trials: one or two faults at random moments, and the shortest sequence that fails again."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from tests.chaos import faults
from tests.chaos.distribution import Distribution, distribution
from tests.chaos.invariants import FROM_NVML_ALONE, Witness, amiss
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.chaos.faults import Damage, Fault, Notice

NAMED_WITHIN_S: Final = 60.0
WELL_WITHIN_S: Final = 120.0
LOOK_EVERY_S: Final = 0.5
READY_WITHIN_S: Final = 300.0
SHORTER: Final = (1, 2, 4, 8)
"""So many of the last trials are tried again on a fresh machine, to find the shortest that fail."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One or two faults. ``seed`` and ``number`` draw everything that is left to chance."""

    seed: int
    number: int
    faults: tuple[str, ...]

    @property
    def chance(self) -> random.Random:
        return random.Random(f"{self.seed}:{self.number}")


@dataclass(slots=True)
class Record:
    """One line of the table. Units: seconds; ``named_s`` since the damage, ``well_s`` after it."""

    trial: Trial
    named_s: float | None = None
    well_s: float | None = None
    lost_runs: int = 0
    broken: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(seed: int, classes: Mapping[str, Sequence[str]]) -> list[Trial]:
    """Each class of faults once alone, then as many pairs of classes.

    Each seed begins where the seed before it ended in the list of all pairs, so that seeds in a row
    try every pair equally often.
    """
    chance = random.Random(seed)
    pairs = list(combinations(classes, 2))
    random.Random(0).shuffle(pairs)
    begin, count = seed * len(classes), min(len(classes), len(pairs))
    chosen: list[tuple[str, ...]] = [(name,) for name in classes]
    chance.shuffle(chosen)
    chosen += [pairs[(begin + n) % len(pairs)] for n in range(count)]
    return [
        Trial(seed, number, tuple(chance.choice(classes[name]) for name in names))
        for number, names in enumerate(chosen)
    ]


def ready(distro: Distribution) -> Witness:
    """Boot, start a container and wait until all is well."""
    distro.boot()
    until(lambda: distro.dockerd().get("up"), "a dockerd that answers", READY_WITHIN_S)
    distro.root("docker import /pause.tar pause")
    distro.root("docker run -d --restart always --network none pause /init")
    until(lambda: not amiss(distro, 0), "a distribution that is well", READY_WITHIN_S)
    witness = Witness(distro)
    witness.begin()
    if not witness.containers:
        raise AssertionError("the container does not run")
    return witness


def run(trial: Trial, distro: Distribution, witness: Witness) -> Record:
    """Do the damage, watch, undo it, and wait until all is well. Nothing is raised."""
    record, chance = Record(trial), trial.chance
    chosen = [faults.load()[name] for name in trial.faults]
    costs = frozenset[str]().union(*(each.costs for each in chosen))
    witness.broken, witness.lost = [], 0
    try:
        time.sleep(chance.uniform(0.0, 2.0))
        _suffer(record, chosen, chance, witness, costs)
        begun_s, before = time.monotonic(), distro.last_good_run()
        left = _watch(lambda: amiss(distro, before), WELL_WITHIN_S, witness, costs)
        if left:
            witness.fail(f"not well within {WELL_WITHIN_S:.0f} s: {'; '.join(left)}")
        else:
            record.well_s = round(time.monotonic() - begun_s, 2)
        witness.end(costs)
    except Exception as error:  # noqa: BLE001  # one trial that breaks is a failure of that trial
        witness.fail(f"{type(error).__name__}: {error}")
    record.broken, record.lost_runs = list(witness.broken), witness.lost
    return record


def _suffer(
    record: Record,
    chosen: Sequence[Fault],
    chance: random.Random,
    witness: Witness,
    costs: frozenset[str],
) -> None:
    """Do the damage and undo it, the last first."""
    with contextlib.ExitStack() as stack:
        for number, each in enumerate(chosen):
            if number:
                time.sleep(chance.uniform(0.0, 1.5))
            damage = each.inject(witness.distro, chance)
            begun_s = time.monotonic()
            expected = next(damage)
            stack.callback(_undo, damage)
        if len(chosen) > 1:
            _watch(lambda: ["for a while"], chance.uniform(0.5, 4.0), witness, costs)
        elif expected is not None:
            _named(expected, begun_s, record, witness, costs)
        else:
            _watch(lambda: ["for a while"], chance.uniform(0.0, 2.0), witness, costs)


def _undo(damage: Damage) -> None:
    for _ in damage:
        raise AssertionError("a fault yields once")


def _named(
    expected: Notice, begun_s: float, record: Record, witness: Witness, costs: frozenset[str]
) -> None:
    """Wait until health names the fault; what comes from NVML alone must be gone then."""
    distro = witness.distro

    def missing() -> list[str]:
        ill = distro.health()
        reasons = {ill[name][1] for name in expected.components if name in ill}
        good = reasons & expected.reasons if expected.reasons else reasons
        return [] if good else [f"health is {ill}"]

    if left := _watch(missing, NAMED_WITHIN_S, witness, costs):
        words = f"{' or '.join(expected.components)} for {sorted(expected.reasons)}"
        witness.fail(f"not named within {NAMED_WITHIN_S:.0f} s: {words}: {left}")
        return
    record.named_s = round(time.monotonic() - begun_s, 2)
    if "nvml" in expected.components and _watch(
        lambda: [k[0] for k in distro.metrics() if k[0] == FROM_NVML_ALONE],
        NAMED_WITHIN_S,
        witness,
        costs,
    ):
        witness.fail("a temperature while NVML gives none")


def _watch(
    amiss: Callable[[], list[str]], within_s: float, witness: Witness, costs: frozenset[str]
) -> list[str]:
    """Look until nothing is amiss, and give what is at the end; invariants are checked."""
    deadline_s = time.monotonic() + within_s
    while True:
        begun_s = time.monotonic()
        witness.look(costs)
        left = amiss()
        if not left or time.monotonic() >= deadline_s:
            return left
        time.sleep(max(0.05, LOOK_EVERY_S - (time.monotonic() - begun_s)))


def replay(trials: Sequence[Trial], layer: Path) -> Record:
    """Run trials in a row on a fresh machine until one fails; give the record of the last."""
    with distribution(layer) as distro:
        witness = ready(distro)
        for trial in trials:
            record = run(trial, distro, witness)
            if record.broken:
                break
        return record


def shrink(trials: Sequence[Trial], layer: Path) -> Sequence[Trial]:
    """Give the shortest tail of these trials that fails again; all where none does."""
    for length in SHORTER:
        if length > len(trials):
            break
        if replay(trials[-length:], layer).broken:
            return trials[-length:]
    return trials
