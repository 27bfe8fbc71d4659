"""The order of a check: gpud's run, the C program's, gpud's again; then whatever else is there."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import compare, sanitize, tools
from .machine import ROOT
from .processes import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .processes import Child, Reference, Run

OWN_PREFIX = "gpud_"
PRODUCTS = ("matmul", "tensor")
WITH_KERNELS = ("triad", "nbody", *PRODUCTS)
TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sides:
    """Who runs on which GPU. ``specs`` are gpud's probes by name."""

    uuid: str
    specs: dict[str, dict[str, Any]]
    child: Child
    reference: Reference
    own: Reference | None  # the C program with gpud's kernels, where its others are not those
    best: Reference | None = None  # and with cuBLAS: apart, since a fault in it must spoil nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run. ``until``: no pair is begun that would end later, on the monotonic clock."""

    probes: tuple[str, ...]
    pairs: int
    seed: int
    until: float


def run(sides: Sides, plan: Plan, say: Callable[[str], None]) -> tuple[list[compare.Round], int]:
    """Run every probe once, then all of them again, while there is time; and say how many pairs.

    gpud goes first in a turn and says what size it chose; the reference does the same work.
    """
    rounds: list[compare.Round] = []
    longest = 0.0
    for pair in range(plan.pairs):
        begun = time.monotonic()
        if pair and begun + longest > plan.until:
            say(f"{pair} of {plan.pairs} pairs: there is no time for more (--seconds)")
            return rounds, pair
        for probe in plan.probes:
            say(f"pair {pair + 1} of {plan.pairs}: {probe}")
            rounds.append(_turn(sides, probe, plan.seed + pair))
        longest = max(longest, time.monotonic() - begun)
    return rounds, plan.pairs


def _turn(sides: Sides, probe: str, seed: int) -> compare.Round:
    spec = sides.specs.get(probe)
    if spec is None:
        ours = failed(f"gpud has no probe called {probe}")
    else:
        ours = sides.child.run(spec, sides.uuid, seed)
    if ours.failure is not None and spec is not None and probe in compare.SIZES:
        # A size of our own might keep a slow GPU busy for seconds, and Windows would reset it.
        return compare.Round(probe, ours, failed("not run, since gpud chose no size"))
    options = ("--only", probe, "--seed", str(seed), *sizes(probe, ours))
    theirs = sides.reference.run(sides.uuid, *options)
    same = None
    if sides.own is not None and probe in WITH_KERNELS:
        same = sides.own.run(sides.uuid, *options)
    best = None
    if sides.best is not None and probe in PRODUCTS:
        best = sides.best.run(sides.uuid, *options)
    return compare.Round(probe, ours, theirs, same, best)


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


def other_tools(uuid: str, rounds: Sequence[compare.Round]) -> tuple[tools.Figures, dict[str, str]]:
    """Ask the frameworks and nvbandwidth for the same work, at the sizes that gpud used."""
    used = {each.probe: each.ours.conditions for each in rounds}
    return tools.measured(
        uuid,
        {
            "triad_bytes": used.get("triad", {}).get("array_bytes", 256 * MIB),
            "copy_bytes": used.get("copy", {}).get("copy_bytes", 64 * MIB),
            "matmul": used.get("matmul", {}).get("n", 4096),
            "tensor": used.get("tensor", {}).get("n", 4096),
        },
    )


def sanitized(uuid: str, own: Reference) -> tuple[list[sanitize.Checked], str | None]:
    """Run gpud's kernels under compute-sanitizer, or say why not."""
    program = sanitize.available()
    if program is None:
        return [], "neither on PATH nor in the toolkit"
    return sanitize.sanitized(program, own, uuid), None
