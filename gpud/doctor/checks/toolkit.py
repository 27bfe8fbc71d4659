"""Check of the NVIDIA Container Toolkit: whether Docker can hand a GPU to a container."""

from __future__ import annotations

from collections.abc import Iterator

from gpud.core.health import Level
from gpud.core.report import ToolkitReport, ToolkitState
from gpud.core.toolkit import CDI_KIND, INSTALL, PROGRAMS, ToolkitFacts, judged
from gpud.doctor import docker
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine, Unreadable

TITLE = "container toolkit"
ORDER = 130
SUMMARY = "the NVIDIA Container Toolkit: its programs, its runtime in daemon.json, its CDI files"
CDI = ("/etc/cdi", "/var/run/cdi")
WAYS = {
    ToolkitState.RUNTIME: "`--gpus`",
    ToolkitState.CDI: "CDI",
    ToolkitState.BOTH: "`--gpus` and CDI",
}


def look(machine: Machine) -> Finding:
    """Take root's report, which asked dockerd; else look at programs and files."""
    containers = machine.root.containers if machine.root is not None else None
    if containers is not None and containers.toolkit is not None:
        return combined(_reported(containers.toolkit), _container_run(machine))
    if docker.desktop(machine):
        return ok("Docker Desktop brings its own")
    content, _ = docker.daemon_json(machine)
    runtimes = content.get("runtimes")
    facts = ToolkitFacts(
        configured=tuple(runtimes) if isinstance(runtimes, dict) else (),
        programs=tuple(name for name in PROGRAMS if machine.program(name) is not None),
        cdi_dirs=CDI,  # only dockerd itself could say that it does not look there
        cdi_specs=tuple(_cdi_files(machine)),
    )
    report = judged(facts)
    if report.state is ToolkitState.NONE and not (
        machine.wsl == "2" and machine.exists("/dev/dxg")
    ):
        return ok("not installed, and no GPU to hand out")
    return _reported(report)


def _cdi_files(machine: Machine) -> Iterator[str]:
    for folder in CDI:
        for name in machine.names(folder):
            path = f"{folder}/{name}"
            try:
                if name.endswith((".yaml", ".json")) and CDI_KIND in (machine.text(path) or ""):
                    yield path
            except Unreadable:
                continue


def _reported(toolkit: ToolkitReport) -> Finding:
    state, evidence = toolkit.state, toolkit.detail or toolkit.reason or ""
    if state in WAYS:
        return ok(f"containers get GPUs by {WAYS[state]}")
    if state is ToolkitState.BROKEN:
        return problem(evidence, toolkit.fix or INSTALL)
    if state is ToolkitState.NONE:
        return advice(evidence, toolkit.fix or INSTALL)
    return unknown(evidence, toolkit.fix)


def _container_run(machine: Machine) -> Finding | None:
    """Report a failed run in a container; its reasons about the toolkit are reported already."""
    health = machine.unwell("containers")
    if health is None or str(health.reason).startswith("toolkit_"):
        return None
    make = problem if health.level is Level.FAILED else advice
    return make(f"in a container: {health.detail}", health.fix or "gpud status")
