"""The NVIDIA Container Toolkit: by which way Docker can hand GPUs out, and what keeps it from that.

Pure: root gathers the facts before a container is started, and the doctor for a person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpud.core.report import ToolkitReport, ToolkitState

HOOK = "nvidia-container-runtime-hook"
"""dockerd offers `--gpus` when it finds this on its PATH at its start."""
CDI_HOOK = "nvidia-cdi-hook"
"""Since 28.3 this one too: `--gpus` is then turned into a CDI request."""
RUNTIME = "nvidia-container-runtime"
PROGRAMS = (HOOK, CDI_HOOK, RUNTIME, "nvidia-container-cli", "nvidia-ctk")
CDI_KIND = "nvidia.com/gpu"
GPUS_BY_CDI = (28, 3)

RESTART = "restart dockerd (where gpud keeps it: `sudo gpud down --docker`, then `sudo gpud up`)"
INSTALL = "`sudo gpud install --gpu-containers` installs and configures it, and restarts dockerd"
GENERATE = "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """What dockerd and the files say. What nobody could ask is None."""

    version: str | None = None  # dockerd's own
    runtimes: tuple[str, ...] | None = None  # names, from /info
    cdi_dirs: tuple[str, ...] | None = None  # from /info; () where CDI is off or not known
    cdi_devices: tuple[str, ...] = ()  # DiscoveredDevices of /info, Docker 28.2 and later
    configured: tuple[str, ...] = ()  # runtimes named in daemon.json
    programs: tuple[str, ...] = ()  # those of ``PROGRAMS`` on dockerd's PATH
    cdi_specs: tuple[str, ...] = ()  # files below the CDI directories that offer ``CDI_KIND``
    desktop: bool = False  # Docker Desktop's: its toolkit is in another machine


def judged(facts: ToolkitFacts) -> ToolkitReport:
    """Say by which way Docker can hand GPUs out, or what keeps it from that."""
    if facts.desktop:
        return ToolkitReport(
            ToolkitState.UNKNOWN,
            "docker_desktop",
            "Docker Desktop brings a toolkit of its own; the files here say nothing of it",
        )
    runtime = _by_runtime(facts)
    cdi = _by_cdi(facts)
    if runtime or cdi:
        state = ToolkitState.BOTH if runtime and cdi else ToolkitState.RUNTIME
        return ToolkitReport(state if runtime else ToolkitState.CDI)
    if trouble := _trouble(facts):
        return ToolkitReport(ToolkitState.BROKEN, *trouble)
    return ToolkitReport(
        ToolkitState.NONE,
        "not_installed",
        "the NVIDIA Container Toolkit is not installed: Docker has no way to hand out a GPU",
        INSTALL,
    )


def _by_runtime(facts: ToolkitFacts) -> bool:
    return HOOK in facts.programs or (
        CDI_HOOK in facts.programs and _at_least(facts.version, GPUS_BY_CDI) and _by_cdi(facts)
    )


def _by_cdi(facts: ToolkitFacts) -> bool:
    offered = any(CDI_KIND in device for device in facts.cdi_devices)
    return bool(facts.cdi_dirs) and (offered or bool(facts.cdi_specs))


def _trouble(facts: ToolkitFacts) -> tuple[str, str, str] | None:
    """Give reason, detail and fix of a toolkit that is there in part."""
    if "nvidia" in facts.configured and RUNTIME not in facts.programs:
        return (
            "runtime_program_missing",
            f"daemon.json names the runtime nvidia, and there is no {RUNTIME}",
            INSTALL,
        )
    if facts.runtimes is not None and "nvidia" in facts.configured:
        loaded = "nvidia" in facts.runtimes
        detail = "daemon.json names the runtime nvidia, and the running dockerd does not know it"
        if not loaded:
            return "not_reloaded", detail, RESTART
        return (
            "hook_missing",
            f"the runtime nvidia is there, and without {HOOK} `--gpus` does not work",
            INSTALL,
        )
    if facts.cdi_specs and facts.cdi_dirs == ():
        return (
            "cdi_off",
            f"{facts.cdi_specs[0]} offers GPUs, and this dockerd has CDI switched off",
            f'set "features": {{"cdi": true}} in daemon.json (Docker 25 or later), then {RESTART}',
        )
    if facts.programs:
        return (
            "not_configured",
            f"of the toolkit there is {', '.join(facts.programs)}, and Docker does not use it",
            INSTALL,
        )
    return None


def _at_least(version: str | None, least: tuple[int, int]) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return match is not None and (int(match[1]), int(match[2])) >= least
