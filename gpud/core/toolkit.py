"""The NVIDIA Container Toolkit, judged from facts, and Docker's own errors, explained.

``judged`` looks before a container is started, ``explained`` after one was refused. Both only read
values: who gathered them (root, or a person's own check) does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpud.core.advice import Situation
from gpud.core.report import ToolkitReport, ToolkitState
from gpud.core.sample import Failure, Reason

HOOK = "nvidia-container-runtime-hook"
"""dockerd offers `--gpus` when it finds this on its PATH at its start."""
CDI_HOOK = "nvidia-cdi-hook"
"""Since 28.3 this one too: `--gpus` is then turned into a CDI request."""
RUNTIME = "nvidia-container-runtime"
PROGRAMS = (HOOK, CDI_HOOK, RUNTIME, "nvidia-container-cli", "nvidia-ctk")
CDI_KIND = "nvidia.com/gpu"
GPUS_BY_CDI = (28, 3)
LONGEST_DETAIL = 600

RESTART = "restart dockerd (where gpud keeps it: `sudo gpud down --docker`, then `sudo gpud up`)"
CONFIGURE = f"`sudo nvidia-ctk runtime configure --runtime=docker`, then {RESTART}"
INSTALL = (
    "install nvidia-container-toolkit (NVIDIA's package repository has it), then "
    f"`sudo nvidia-ctk runtime configure --runtime=docker`, then {RESTART}"
)
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
            CONFIGURE,
        )
    return None


def _at_least(version: str | None, least: tuple[int, int]) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version or "")
    return match is not None and (int(match[1]), int(match[2])) >= least


@dataclass(frozen=True, slots=True)
class Rule:
    """One error of Docker's: how it is recognised, what it means and what to do."""

    pattern: str  # searched for without regard to case
    reason: Reason
    meaning: str
    fix: str  # or the ``Situation``, where it depends on the platform


RULES = (
    Rule(
        r'could not select device driver "[^"]*" with capabilities: \[\[gpu\]\]',
        Reason.TOOLKIT_MISSING,
        "dockerd found no NVIDIA Container Toolkit when it started",
        INSTALL,
    ),
    Rule(
        r"unknown or invalid runtime name: ?nvidia|unknown runtime specified nvidia",
        Reason.RUNTIME_UNKNOWN,
        "dockerd has no runtime of the name nvidia",
        CONFIGURE,
    ),
    Rule(
        r"WSL environment detected but no adapters were found",
        Reason.NO_DEVICE,
        "the toolkit sees WSL and no GPU in it: WSL 1, no NVIDIA GPU, or a driver too old",
        "look whether /dev/dxg is there and nvidia-smi answers; update the NVIDIA driver on the "
        "Windows side, then `wsl --shutdown` from Windows",
    ),
    Rule(
        r"driver/library version mismatch",
        Reason.DRIVER_MISMATCH,
        "the driver was replaced while this machine ran",
        Situation.MISMATCH,
    ),
    Rule(
        r"load library failed: \S*libnvidia-ml\.so|libnvidia-ml\.so\.1: cannot open",
        Reason.LIBRARY_MISSING,
        "the toolkit does not find the driver's NVML library",
        Situation.LIBRARY_UNSEEN,
    ),
    Rule(
        r"nvml error: driver not loaded|nvidia-container-cli: device error: no NVIDIA device",
        Reason.INIT_FAILED,
        "the toolkit does not reach the driver",
        Situation.NOT_LOADED,
    ),
    Rule(
        r"requirement error: unsatisfied condition",
        Reason.REQUIREMENT_UNMET,
        "the image asks for a newer CUDA than the driver offers",
        "update the NVIDIA driver, or choose an image made for an older CUDA",
    ),
    Rule(
        r"mount error: .*nvidia-persistenced",
        Reason.MOUNT_FAILED,
        "the socket of nvidia-persistenced cannot be mounted into the container",
        "do not mount /run or /var/run into it, and restart nvidia-persistenced",
    ),
    Rule(
        r"nvidia-container-cli: mount error",
        Reason.MOUNT_FAILED,
        "a file of the driver cannot be mounted into the container",
        f"{RESTART}; when it stays, reinstall nvidia-container-toolkit",
    ),
    Rule(
        r"unresolvable CDI devices",
        Reason.CDI_UNRESOLVED,
        "no CDI file offers the GPU, or it is older than the driver",
        GENERATE,
    ),
    Rule(
        r"CDI device injection failed|failed to inject CDI devices|CDI .*: (?:invalid|failed)",
        Reason.CDI_FAILED,
        "a CDI file is there and cannot be applied",
        GENERATE,
    ),
    Rule(
        r"nvidia-container-cli|nvidia-container-runtime|nvidia-cdi-hook|nvidia-ctk",
        Reason.TOOLKIT_FAILED,
        "the NVIDIA Container Toolkit failed",
        "read its own words; `nvidia-container-cli -k -d /dev/tty info` says more",
    ),
    Rule(
        r"no CUDA-capable device|only 0 Devices available|cudaErrorNoDevice",
        Reason.NO_DEVICE,
        "inside the container CUDA sees no GPU",
        Situation.CONTAINER_BLIND,
    ),
    Rule(
        r"CUDA driver version is insufficient|cudaErrorInsufficientDriver",
        Reason.DRIVER_MISMATCH,
        "the image was built for a newer CUDA than the driver offers",
        Situation.TOO_OLD,
    ),
)
"""The first that fits holds, so what says more comes first."""


def explained(text: str, otherwise: Reason) -> Failure:
    """Turn Docker's or the sample's own words into a failure a person can act on.

    Its advice may be a ``Situation``: ``advice.worded`` puts that into words.
    """
    own = " ".join(text.split())
    for rule in RULES:
        if match := re.search(rule.pattern, own, re.IGNORECASE):
            return Failure(rule.reason, f"{rule.meaning}; {_around(own, match)}", advice=rule.fix)
    return Failure(otherwise, _around(own, None) or "no word about why")


def _around(text: str, match: re.Match[str] | None) -> str:
    """Keep the part of a long chain of wrapped errors that holds the one that counts."""
    if len(text) <= LONGEST_DETAIL:
        return text
    start = 0 if match is None else max(0, match.start() - LONGEST_DETAIL // 3)
    return text[start : start + LONGEST_DETAIL]
