"""The order of a check: in every second pair the C program goes first."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import compare, sanitize
from .clocks import Clocks
from .machine import ROOT
from .processes import failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .processes import Child, Reference, Run

OWN_PREFIX = "gpud_"
PRODUCTS = ("matmul", "tensor")
WITH_KERNELS = ("triad", "nbody", *PRODUCTS)
TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sides:
    """Who runs on which GPU. ``specs`` are gpud's probes by name; ``peer`` is a second GPU."""

    uuid: str
    specs: dict[str, dict[str, Any]]
    child: Child
    reference: Reference
    own: Reference | None  # the C program with gpud's kernels, where its others are not those
    best: Reference | None = None  # and with cuBLAS: apart, since a fault in it must spoil nothing
    clocks: Clocks = field(default_factory=Clocks)
    peer: str | None = None

    def clocked(self, run: Callable[[], Run]) -> Run:
        """Do a run, and add the clocks that were seen in it."""
        begun = time.monotonic()
        done = run()
        return replace(done, clocks=self.clocks.between(begun, time.monotonic()))


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run. ``until``: no pair is begun that would end later, on the monotonic clock."""

    probes: tuple[str, ...]
    pairs: int
    seed: int
    until: float


def run(sides: Sides, plan: Plan, say: Callable[[str], None]) -> tuple[list[compare.Round], int]:
    """Run every probe once, then all of them again, while there is time; and say how many pairs.

    In the first pair gpud chooses the sizes, and the reference does the same work. In every second
    pair the reference goes first, at the sizes of the pair before.
    """
    rounds: list[compare.Round] = []
    chosen: dict[str, list[str]] = {}
    longest = 0.0
    for pair in range(plan.pairs):
        begun = time.monotonic()
        if pair and begun + longest > plan.until:
            say(f"{pair} of {plan.pairs} pairs: there is no time for more (--seconds)")
            return rounds, pair
        for probe in plan.probes:
            say(f"pair {pair + 1} of {plan.pairs}: {probe}")
            before = chosen.get(probe) if pair % 2 else None
            rounds.append(_turn(sides, probe, plan.seed + pair, before))
            chosen[probe] = sizes(probe, rounds[-1].ours)
        longest = max(longest, time.monotonic() - begun)
    return rounds, plan.pairs


def _turn(sides: Sides, probe: str, seed: int, before: list[str] | None) -> compare.Round:
    """Run both sides; ``before`` are the sizes at which the reference goes first."""

    def beside(reference: Reference, chosen: list[str]) -> Run:
        options = ("--only", probe, "--seed", str(seed), *chosen)
        if probe in compare.BETWEEN and sides.peer is not None:
            options += ("--peer", sides.peer)
        return sides.clocked(lambda: reference.run(sides.uuid, *options))

    spec = sides.specs.get(probe)
    sized = probe not in compare.SIZES or bool(before)
    early = beside(sides.reference, before) if before is not None and sized else None
    if spec is None:
        ours = failed(f"gpud has no probe called {probe}")
    else:
        ours = sides.clocked(lambda: sides.child.run(spec, sides.uuid, seed, sides.peer))
    if ours.failure is not None and spec is not None and probe in compare.SIZES:
        # A size of our own might keep a slow GPU busy for seconds, and Windows would reset it.
        return compare.Round(probe, ours, early or failed("not run, since gpud chose no size"))
    chosen = sizes(probe, ours)
    if early is not None and chosen != before:
        early = None  # gpud chose another size this time
    theirs = early or beside(sides.reference, chosen)
    same = None
    if sides.own is not None and probe in WITH_KERNELS:
        same = beside(sides.own, chosen)
    best = None
    if sides.best is not None and probe in PRODUCTS:
        best = beside(sides.best, chosen)
    return compare.Round(probe, ours, theirs, same, best, "C" if early else "gpud")


def sizes(probe: str, ours: Run) -> list[str]:
    """Give the reference the sizes that gpud's run says it used."""
    options = []
    for condition, option in compare.SIZES.get(probe, ()):
        value = ours.conditions.get(condition)
        if isinstance(value, int) and value > 0:
            options += [option, str(value)]
    return options


def own_modules(capability: str) -> tuple[Path, ...]:
    """List gpud's shipped PTX, less what is written for newer GPUs than this one."""
    major, minor = map(int, capability.split("."))
    found = []
    for file in sorted((ROOT / "gpud" / "child" / "kernels").glob("*.ptx")):
        target = TARGET.search(file.read_text(encoding="ascii"))
        if target and int(target[1]) <= 10 * major + minor:
            found.append(file)
    return tuple(found)


def sanitized(uuid: str, own: Reference) -> tuple[list[sanitize.Checked], str | None]:
    """Run gpud's kernels under compute-sanitizer, or say why not."""
    program = sanitize.available()
    if program is None:
        return [], "neither on PATH nor in the toolkit"
    return sanitize.sanitized(program, own, uuid), None
