"""Finding of a check: a verdict, the evidence for it and, where there is one, the fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


def ok(evidence: str) -> Finding:
    """Nothing to do."""
    return Finding(Verdict.OK, evidence)


def unknown(evidence: str, fix: str | None = None) -> Finding:
    """It cannot be decided; the evidence says why."""
    return Finding(Verdict.UNKNOWN, evidence, fix)


def advice(evidence: str, fix: str) -> Finding:
    """It works, and could be better or is about to stop working."""
    return Finding(Verdict.ADVICE, evidence, fix)


def problem(evidence: str, fix: str) -> Finding:
    """Something that gpud is for does not work, or is not safe."""
    return Finding(Verdict.PROBLEM, evidence, fix)


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
