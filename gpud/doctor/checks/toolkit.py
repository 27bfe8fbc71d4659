"""Whether Docker can hand a GPU to a container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpud.core.report import ToolkitReport, ToolkitState
from gpud.core.toolkit import CDI_KIND, INSTALL, PROGRAMS, ToolkitFacts, judged
from gpud.doctor import docker
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.doctor.machine import Machine

TITLE = "container toolkit"
ORDER = 130
SUMMARY = "the NVIDIA Container Toolkit: its programs, its runtime in daemon.json, its CDI files"
CDI = ("/etc/cdi", "/var/run/cdi")
FAILED = 2
WAYS = {
    ToolkitState.RUNTIME: "`--gpus`",
    ToolkitState.CDI: "CDI",
    ToolkitState.BOTH: "`--gpus` and CDI",
}


def look(machine: Machine) -> Finding:
    """Take root's judgement, which asked dockerd; else look at programs and files."""
    containers = getattr(machine.root, "containers", None)
    if containers is not None and containers.toolkit is not None:
        return combined(reported(containers.toolkit), ran(machine.health("containers")))
    if docker.desktop(machine):
        return ok("Docker Desktop brings its own")
    said, _ = docker.daemon_json(machine)
    runtimes = said.get("runtimes")
    facts = ToolkitFacts(
        configured=tuple(runtimes) if isinstance(runtimes, dict) else (),
        programs=tuple(name for name in PROGRAMS if machine.program(name) is not None),
        cdi_dirs=CDI,  # only dockerd itself could say that it does not look there
        cdi_specs=tuple(_specs(machine)),
    )
    return unasked(judged(facts), gpu=machine.wsl == "2" and machine.exists("/dev/dxg"))


def _specs(machine: Machine) -> list[str]:
    found = []
    for folder in CDI:
        for name in machine.names(folder):
            if name.endswith((".yaml", ".json")):
                try:
                    text = machine.text(f"{folder}/{name}") or ""
                except Unreadable:
                    continue
                if CDI_KIND in text:
                    found.append(f"{folder}/{name}")
    return found


def reported(toolkit: ToolkitReport) -> Finding:
    """Pass on how the toolkit was judged."""
    state, words = toolkit.state, toolkit.detail or toolkit.reason or ""
    if state in WAYS:
        return ok(f"containers get GPUs by {WAYS[state]}")
    if state is ToolkitState.BROKEN:
        return problem(words, toolkit.fix or INSTALL)
    if state is ToolkitState.NONE:
        return advice(words, toolkit.fix or INSTALL)
    return unknown(words, toolkit.fix)


def ran(health: Mapping[str, Any]) -> Finding | None:
    """Pass on how the container probe went; what it says of the toolkit itself is said above."""
    if not health.get("level") or str(health.get("reason")).startswith("toolkit_"):
        return None
    judge = problem if health.get("level") == FAILED else advice
    return judge(f"in a container: {health.get('detail')}", str(health.get("fix") or "gpud status"))


def unasked(toolkit: ToolkitReport, *, gpu: bool) -> Finding:
    """Say what the files alone tell; where there is no GPU nobody misses the toolkit."""
    if toolkit.state is ToolkitState.NONE and not gpu:
        return ok("not installed, and no GPU to hand out")
    return reported(toolkit)
