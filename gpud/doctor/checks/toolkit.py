"""Whether Docker can hand a GPU to a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpud.doctor import docker
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.doctor.machine import Machine

TITLE = "container toolkit"
ORDER = 130
SUMMARY = "the NVIDIA Container Toolkit: its programs, its runtime in daemon.json, its CDI files"
PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")
CDI = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/gpu"
FAILED = 2
INSTALL = (
    "install nvidia-container-toolkit, then "
    "`sudo nvidia-ctk runtime configure --runtime=docker` and restart dockerd"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What any person can see of the toolkit."""

    programs: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()  # named in daemon.json
    specs: tuple[str, ...] = ()  # CDI files that offer GPUs


def look(machine: Machine) -> Finding:
    """Take root's judgement, which asked dockerd; else look at programs and files."""
    containers = getattr(machine.root, "containers", None)
    if containers is not None and containers.toolkit is not None:
        return combined(reported(containers.toolkit), ran(machine.health("containers")))
    if docker.desktop(machine):
        return ok("Docker Desktop brings its own")
    said, _ = docker.daemon_json(machine)
    runtimes = said.get("runtimes")
    facts = Facts(
        programs=tuple(name for name in PROGRAMS if machine.program(name) is not None),
        runtimes=tuple(runtimes) if isinstance(runtimes, dict) else (),
        specs=tuple(_specs(machine)),
    )
    return judged(facts, gpu=machine.wsl == "2" and machine.exists("/dev/dxg"))


def _specs(machine: Machine) -> list[str]:
    found = []
    for folder in CDI:
        for name in machine.names(folder):
            if name.endswith((".yaml", ".json")):
                try:
                    text = machine.text(f"{folder}/{name}") or ""
                except Unreadable:
                    continue
                if KIND in text:
                    found.append(f"{folder}/{name}")
    return found


def reported(toolkit: Any) -> Finding:  # noqa: ANN401  # root's own report, read by its names
    """Pass on what root says of the toolkit."""
    state, words = str(toolkit.state), toolkit.detail or toolkit.reason or ""
    if state in {"runtime", "cdi", "both"}:
        ways = {"runtime": "`--gpus`", "cdi": "CDI", "both": "`--gpus` and CDI"}
        return ok(f"containers get GPUs by {ways[state]}")
    if state == "broken":
        return problem(words, toolkit.fix or INSTALL)
    if state == "none":
        return advice(words, toolkit.fix or INSTALL)
    return unknown(words, toolkit.fix)


def ran(health: Mapping[str, Any]) -> Finding | None:
    """Pass on how the container probe went; what it says of the toolkit itself is said above."""
    if not health.get("level") or str(health.get("reason")).startswith("toolkit_"):
        return None
    judge = problem if health.get("level") == FAILED else advice
    return judge(f"in a container: {health.get('detail')}", str(health.get("fix") or "gpud status"))


def judged(facts: Facts, *, gpu: bool) -> Finding:
    """Judge what is there; where there is no GPU nobody misses it."""
    if "nvidia" in facts.runtimes and "nvidia-container-runtime" not in facts.programs:
        return problem("daemon.json names the runtime nvidia, and its program is missing", INSTALL)
    ways = ["`--gpus`"] if "nvidia-container-runtime-hook" in facts.programs else []
    ways += [f"CDI ({facts.specs[0]})"] if facts.specs else []
    if ways:
        return ok(f"installed; by its files containers get GPUs by {' and '.join(ways)}")
    if facts.programs:
        return advice(f"there is {', '.join(facts.programs)}, and Docker does not use it", INSTALL)
    if not gpu:
        return ok("not installed, and no GPU to hand out")
    return advice("not installed: Docker has no way to hand out the GPU", INSTALL)
