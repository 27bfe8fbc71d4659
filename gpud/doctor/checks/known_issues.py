"""Check of this machine's versions against the catalogue of known faults."""

from __future__ import annotations

from gpud.core.advice import Platform
from gpud.doctor.finding import Finding, advice, check, combined, ok, unknown
from gpud.doctor.machine import Machine
from gpud.known_issues.catalogue import Confidence, KnownIssue, catalogue
from gpud.known_issues.matching import MachineFacts, Relation, by_version

SURENESS = {
    Confidence.MAINTAINER: "confirmed by its maintainers",
    Confidence.SEVERAL: "reported by several people",
    Confidence.SINGLE: "reported once",
}
NAMES = {
    "wsl_version": "WSL's version",
    "windows_build": "Windows' build",
    "driver": "the driver",
    "compute_capability": "the GPU",
}


@check(98, "known faults")
def known_issues(machine: Machine) -> Finding:
    """Versions of kernel, WSL, Windows and driver against the catalogue of known faults."""
    if machine.platform not in {Platform.WSL2, Platform.LINUX}:
        return ok("the catalogue is about WSL 2 and plain Linux")
    described = _machines(machine)
    matches = {entry: kind for facts in described for entry, kind in by_version(catalogue(), facts)}
    if matches:
        return combined(*(_finding(entry, kind) for entry, kind in matches.items()))
    evidence = f"none of {len(catalogue())} is about these versions alone"
    missing = [
        name
        for field, name in NAMES.items()
        if all(getattr(facts, field) is None for facts in described)
        and (machine.wsl or field not in {"wsl_version", "windows_build"})
    ]
    if missing:
        evidence += f"; not known here: {', '.join(missing)}"
    return ok(evidence) if machine.agent.started_s else unknown(evidence, "gpud up")


def _machines(machine: Machine) -> list[MachineFacts]:
    """Describe the machine once for each GPU, once without any."""
    status = machine.agent
    readings = {reading.field: reading.value for reading in status.telemetry.readings}
    driver = readings.get("driver_version")
    devices = status.cuda.devices if status.cuda else ()
    return [
        MachineFacts(
            platform=str(machine.platform),
            wsl_version=status.platform.get("wsl_version"),
            kernel=machine.kernel or None,
            windows_build=status.platform.get("windows_build"),
            driver=driver if isinstance(driver, str) else None,
            compute_capability=capability,
        )
        for capability in dict.fromkeys(device.compute_capability for device in devices) or [None]
    ]


def _finding(entry: KnownIssue, kind: Relation) -> Finding:
    where = "" if kind is Relation.APPLIES else " on these versions"
    source = entry.sources[0].url
    evidence = f"{entry.id}: {entry.title} ({SURENESS[entry.confidence]}{where}; {source})"
    if kind is Relation.REPORTED:
        evidence += "; that it happens here is not said"
    return advice(evidence, entry.workaround or "none is known")
