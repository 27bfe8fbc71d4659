"""Check of this machine against the catalogue of known faults."""

from __future__ import annotations

from gpud.core.advice import Platform
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine
from gpud.document.alerts import SEEN, FaultReport
from gpud.known_issues.catalogue import catalogue
from gpud.known_issues.matching import MachineFacts, Relation, by_version
from gpud.words import NO_FIX, sureness

QUOTED = 400
"""Characters of evidence."""


@check(98, "known faults")
def known_issues(machine: Machine) -> Finding:
    """Versions and what gpud saw, against known faults."""
    if machine.platform not in {Platform.WSL2, Platform.LINUX}:
        return ok("the catalogue is about WSL 2 and plain Linux")
    running = bool(machine.agent.started_s)
    faults = machine.agent.known_faults if running else _of_kernel(machine)
    if faults:
        return combined(*map(_finding, faults))
    none = f"none of {len(catalogue())} is about these versions alone"
    if running:
        return ok(f"{none}, and none was seen here")
    what = "the driver and the GPU are"
    if machine.wsl:
        what = f"WSL's version, Windows' build, {what}"
    return unknown(f"{none}; {what} not known without a running gpud", "gpud up")


def _of_kernel(machine: Machine) -> list[FaultReport]:
    """Return the faults that the kernel alone is enough for."""
    facts = MachineFacts(platform=str(machine.platform), kernel=machine.kernel or None)
    return [
        FaultReport(
            id=entry.id,
            state=kind,
            title=entry.title,
            fix=entry.workaround,
            source=entry.sources[0].url,
            confidence=entry.confidence,
        )
        for entry, kind in by_version(facts)
    ]


def _finding(fault: FaultReport) -> Finding:
    words = f"{fault.id}: {fault.title} ({sureness(fault.confidence, fault.source)})"
    fix = fault.fix or NO_FIX
    if fault.state == SEEN:
        how = "seen here with a failed or stalled GPU call" if fault.alarm else "seen here"
        evidence = f"{words}; {how}: {(fault.evidence or 'no trace was kept')[:QUOTED]}"
        return problem(evidence, fix) if fault.alarm else advice(evidence, fix)
    if fault.state == Relation.REPORTED:
        words += "; reported on these versions, that it happens here is not said"
    return advice(words, fix)
