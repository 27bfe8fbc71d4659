"""Checks and their findings: a verdict, the evidence for it and, where there is one, the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gpud.core.health import Health, Level
from gpud.doctor.machine import Machine
from gpud.units import clock


class Verdict(StrEnum):
    """From good to bad, as ``combined`` ranks them; only a problem makes the exit code 1."""

    OK = "ok"
    UNKNOWN = "unknown"
    ADVICE = "advice"
    PROBLEM = "problem"


RANK = {verdict: rank for rank, verdict in enumerate(Verdict)}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. ``evidence`` may quote a driver or a file: it is not trusted."""

    verdict: Verdict
    evidence: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report, in the place that ``order`` gives it.

    One that ``may_block`` in the kernel runs in a process that can be left behind.
    """

    name: str  # in the JSON document
    title: str
    order: int
    look: Callable[[Machine], Finding]  # the first line of its docstring is in docs/doctor.md
    may_block: bool


def check(
    order: int, title: str, *, may_block: bool = False
) -> Callable[[Callable[[Machine], Finding]], Check]:
    """Make a function the check of its name."""
    return lambda look: Check(look.__name__, title, order, look, may_block)


def ok(evidence: str) -> Finding:
    """Nothing to do."""
    return Finding(Verdict.OK, evidence)


def unknown(evidence: str, fix: str | None = None) -> Finding:
    """It cannot be decided; the evidence says why."""
    return Finding(Verdict.UNKNOWN, evidence, fix)


def not_looked(machine: Machine) -> Finding:
    """Say why nothing is known of the driver: only a running agent asks it, and not at once."""
    if machine.root is None:
        return unknown("not known without a running gpud", "gpud up")
    from_s = machine.agent.gpu_from_s
    if from_s is None or from_s <= machine.now.wall_s:
        return unknown("the agent has not looked yet", "ask again in a moment")
    return unknown(f"not asked before {clock(from_s)}: WSL has just started", "ask again then")


def advice(evidence: str, fix: str) -> Finding:
    """It works, and could be better or is about to stop working."""
    return Finding(Verdict.ADVICE, evidence, fix)


def problem(evidence: str, fix: str) -> Finding:
    """Something that gpud is for does not work, or is not safe."""
    return Finding(Verdict.PROBLEM, evidence, fix)


def passed_on(health: Health, evidence: str, fix: str) -> Finding:
    """Pass on the health of a component of the agent; ``fix`` is for one that has none."""
    if health.level == Level.OK:
        return ok(evidence)
    make = problem if health.level == Level.FAILED else advice
    return make(evidence, health.fix or fix)


def combined(*findings: Finding | None) -> Finding:
    """Combine findings: the worst verdict, its evidence first, each fix once.

    Errors: ``ValueError`` without any finding.
    """
    ranked = sorted(filter(None, findings), key=lambda finding: -RANK[finding.verdict])
    if not ranked:
        raise ValueError("no finding to combine")
    fixes = dict.fromkeys(finding.fix for finding in ranked if finding.fix)
    evidence = "; ".join(finding.evidence for finding in ranked)
    return Finding(ranked[0].verdict, evidence, "; ".join(fixes) or None)
