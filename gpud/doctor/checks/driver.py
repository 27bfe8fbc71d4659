"""Checks of the driver: its device, its version, which Windows replaces overnight, its telemetry.

The readings are the running agent's.
"""

from __future__ import annotations

import os
import re
import stat

from gpud.core.advice import Platform, Situation
from gpud.core.telemetry import LEVELS, SEES_A_GPU
from gpud.doctor.finding import (
    Finding,
    advice,
    check,
    combined,
    not_looked,
    ok,
    passed_on,
    problem,
    unknown,
)
from gpud.doctor.machine import Machine
from gpud.document.status import Status
from gpud.show import gpus

DEVICE = "/dev/dxg"
MODULE = "/proc/driver/nvidia/version"
STORE = "/usr/lib/wsl/drivers"
"""Windows' driver store as WSL shows it; NVIDIA's folders, of a thousand, begin with ``PREFIX``."""
PREFIX = "nv"
MARKS = ("libcuda.so.1.1", "nvidia-smi")
"""Files of which one at least lies in a folder that holds a driver."""
_LOADED = re.compile(r"NVRM version:.*?\s(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\s")


@check(60, "/dev/dxg")
def dxg(machine: Machine) -> Finding:
    """The GPU's device, or NVIDIA's own on Linux."""
    if machine.wsl != "2":
        own = [name for name in machine.names("/dev") if name.startswith("nvidia")]
        where = "WSL 1 offers no GPU" if machine.wsl == "1" else "not WSL 2"
        return ok(f"{where}; NVIDIA's own devices: {', '.join(own[:6]) or 'none'}")
    facts = machine.stat(DEVICE)
    if machine.wsl_switch("gpu", "enabled") is False:
        return advice(
            f"{'there' if facts else 'none'}: [gpu] enabled=false in wsl.conf switches the GPU off",
            "remove that line, then from Windows: wsl --shutdown",
        )
    if facts is None:
        return problem(
            "none: Windows offers no GPU to this distribution",
            "install the NVIDIA driver in Windows, wsl --update, then wsl --shutdown; "
            "gpuSupport=false in .wslconfig switches it off too",
        )
    if not stat.S_ISCHR(facts.st_mode):
        return problem(f"{DEVICE} is not a device", f"remove {DEVICE}; wsl --shutdown")
    if not os.access(machine.at(DEVICE), os.R_OK | os.W_OK):  # opening it would reach the driver
        return problem(f"{DEVICE} may not be opened by you", f"sudo chmod 0666 {DEVICE}")
    return ok("there")


@check(90, "driver", may_block=True)  # Windows' driver store
def driver(machine: Machine) -> Finding:
    """Version, folders in Windows' store, or Linux's module."""
    status = machine.agent
    if reason := _untold(machine):
        return reason
    version = _version(machine, status)
    if machine.wsl == "2":
        return combined(version, _folders(machine, _fact(status, "driver_folder")))
    return combined(version, _module(machine, status))


def _version(machine: Machine, status: Status) -> Finding:
    version = _fact(status, "driver_version")
    if version is None and machine.no_gpu is not None:
        return ok(machine.no_gpu)
    if version is None:
        return unknown("its version is not known: the line on telemetry says why")
    library, cuda = _fact(status, "nvml_version"), _fact(status, "cuda_version")
    side = library if machine.wsl == "2" and library != version else None
    evidence = f"driver {version}{f' (WSL side {side})' if side else ''}"
    return ok(f"{evidence}{f', CUDA {cuda}' if cuda else ''}")


def _folders(machine: Machine, used: str | None) -> Finding | None:
    """Name the driver's folders in Windows' store if there are several: one is in use."""
    folders = [
        name
        for name in machine.names(STORE)
        if name.lower().startswith(PREFIX)
        and any(machine.exists(f"{STORE}/{name}/{mark}") for mark in MARKS)
    ]
    if folders and machine.no_gpu is not None and machine.health("cuda"):
        evidence = f"an NVIDIA driver lies in Windows' store ({folders[0]}), and WSL has none of it"
        return problem(evidence, "from Windows: wsl --shutdown; else install the driver again")
    if len(folders) < 2:  # noqa: PLR2004  # several
        return None
    which = f"{used} is in use" if used else "which is in use is not known"
    return ok(f"{len(folders)} drivers lie in Windows' store ({', '.join(folders[:4])}), {which}")


def _module(machine: Machine, status: Status) -> Finding | None:
    """Compare the kernel's module with its libraries, on plain Linux."""
    module = _LOADED.search(machine.text(MODULE) or "")
    library = _fact(status, "nvml_version") or _fact(status, "driver_version")
    if module is None or library in {None, module[1]} or machine.platform is Platform.CONTAINER:
        return None
    evidence = f"the kernel's module is {module[1]} and its libraries are {library}"
    return problem(evidence, machine.fix(Situation.MISMATCH))


@check(95, "telemetry")
def telemetry(machine: Machine) -> Finding:
    """Source of temperature, power and clocks."""
    status, health = machine.agent, machine.health("nvml")
    if reason := _untold(machine):
        return reason
    source = gpus.SOURCES.get(status.telemetry.level, "a source of another gpud")
    if "nvml" in machine.settings.telemetry.disabled:
        return ok(f"from {source}; NVML is switched off: [telemetry] disabled")
    if health is None:
        return not_looked(machine)
    if not _gpu_visible(status):
        evidence = health.detail or "no GPU, and none expected"
        return passed_on(health, evidence, machine.fix(Situation.TELEMETRY_SILENT))
    cards = [of for number, of in gpus.by_gpu(status).items() if number is not None]
    silent = status.telemetry.level != LEVELS[-1]
    parts = [f"NVML is silent, the values come from {source}" if silent else f"from {source}"]
    parts += filter(None, [health.detail, *dict.fromkeys(map(gpus.missing, cards))])
    return passed_on(health, "; ".join(parts), machine.fix(Situation.TELEMETRY_SILENT))


def _gpu_visible(status: Status) -> bool:
    """Return whether the best source sees a GPU."""
    level = status.telemetry.level
    return level in LEVELS and LEVELS.index(level) >= SEES_A_GPU


def _fact(status: Status, name: str) -> str | None:
    """Return a fact of the machine, such as ``driver_version``; None if it is not known."""
    values = (each.value for each in status.telemetry.readings if each.field == name)
    return next((value for value in values if isinstance(value, str)), None)


def _untold(machine: Machine) -> Finding | None:
    """Say why the agent has no telemetry; None if it has."""
    if machine.root is not None and machine.agent.telemetry.sources:
        return None
    if set(LEVELS[1:]) <= set(machine.settings.telemetry.disabled):
        return ok("every source is switched off: [telemetry] disabled")
    if machine.no_gpu is not None:
        return ok(machine.no_gpu)
    return not_looked(machine)
