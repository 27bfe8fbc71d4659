"""The driver's version, which Windows replaces overnight, and what it must fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpud.core.advice import Platform, Situation
from gpud.core.exposure import MARKS, PREFIX, STORE
from gpud.core.telemetry import LEVELS, SEES_A_GPU
from gpud.doctor import telemetry
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.doctor.machine import Machine
    from gpud.doctor.telemetry import Said

TITLE = "driver"
ORDER = 90
SUMMARY = "the NVIDIA driver's version, its folders in Windows' store, and the kernel it must fit"
OLDEST_DRIVER = 495
"""The first Windows driver with CUDA on WSL. Source: NVIDIA's guide to CUDA on WSL."""
OLDEST_KERNEL = (5, 10)
MODULE = "/proc/driver/nvidia/version"
_LOADED = re.compile(r"NVRM version:.*?\s(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\s")


def look(machine: Machine) -> Finding:
    """Take the agent's readings, else ask its telemetry helper once."""
    said = telemetry.said(machine)
    if said is None:
        return telemetry.silent(machine)
    wsl = machine.wsl == "2"
    return combined(
        driver(said, machine),
        one_driver(said, cuda_version(machine.agent)),
        folders(machine, said.machine("driver_folder")) if wsl else module(machine, said),
        kernel(machine.kernel or "") if wsl else None,
    )


def driver(said: Said, machine: Machine) -> Finding:
    """Judge the version, or why there is none: only where WSL offers a GPU is that a problem."""
    version, wsl = said.machine("driver_version"), machine.wsl == "2"
    if version is None and machine.no_gpu is not None and not machine.settings.nvml.library:
        return ok(machine.no_gpu)
    if version is None:
        return _without(said, wsl=wsl)
    major = re.match(r"[0-9]{1,6}", version)
    if wsl and major is not None and int(major[0]) < OLDEST_DRIVER:
        return problem(
            f"driver {version}: CUDA in WSL began with {OLDEST_DRIVER}",
            machine.fix(Situation.TOO_OLD),
        )
    library, cuda = said.machine("nvml_version"), said.machine("cuda_version")
    side = f" (WSL side {library})" if wsl and library not in {None, version} else ""
    return ok(f"driver {version}{side}{f', CUDA {cuda}' if cuda else ''}")


def _without(said: Said, *, wsl: bool) -> Finding:
    reason = said.trouble.get("reason")
    if said.health.get("level") == 0 and said.health.get("detail"):  # no GPU, and none expected
        return ok(str(said.health["detail"]))
    if reason == "library_missing" and not wsl:
        return ok("no NVIDIA driver on this machine")
    if LEVELS.index(said.level) >= SEES_A_GPU and reason != "driver_mismatch":
        return unknown("its version is not known: the line on telemetry says why")
    detail = str(said.trouble.get("detail") or "nobody gives the driver's version")
    fix = str(said.trouble["fix"]) if said.trouble.get("fix") else None
    wrong = (wsl or reason == "driver_mismatch") and fix is not None
    return problem(detail, fix) if wrong and fix is not None else unknown(detail, fix)


def cuda_version(agent: Mapping[str, Any]) -> str | None:
    """Give the CUDA version that libcuda told, as far as the agent says one."""
    inventory = agent.get("cuda")
    found = inventory.get("cuda_version") if isinstance(inventory, dict) else None
    return found if isinstance(found, str) else None


def one_driver(said: Said, cuda: str | None) -> Finding | None:
    """Hold libcuda's word against NVML's: two answers are two drivers."""
    other = said.machine("cuda_version")
    if cuda is None or other is None or cuda == other:
        return None
    return advice(
        f"libcuda is of CUDA {cuda} and NVML of CUDA {other}: they are of two drivers",
        "the lines on libcuda and libnvidia-ml say which files are loaded; remove the stray one",
    )


def folders(machine: Machine, used: str | None) -> Finding | None:
    """Name the driver's folders in Windows' store where there are several: one is in use."""
    found = [
        name
        for name in machine.names(STORE)
        if name.lower().startswith(PREFIX)
        and any(machine.exists(f"{STORE}/{name}/{mark}") for mark in MARKS)
    ]
    if len(found) < 2:  # noqa: PLR2004  # several
        return None
    which = f"{used} is in use" if used else "which is in use is not known"
    return ok(f"{len(found)} drivers lie in Windows' store ({', '.join(found[:4])}), {which}")


def module(machine: Machine, said: Said) -> Finding | None:
    """Hold the kernel's module against its libraries, on plain Linux."""
    found = _LOADED.search(machine.text(MODULE) or "")
    library = said.machine("nvml_version") or said.machine("driver_version")
    if found is None or machine.platform is Platform.CONTAINER or library in {None, found[1]}:
        return None
    return problem(
        f"the kernel's module is {found[1]} and its libraries are {library}",
        machine.fix(Situation.MISMATCH),
    )


def kernel(release: str) -> Finding:
    """Judge the WSL kernel: ``wsl --update`` brings a new one."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST_KERNEL:
        return advice(f"WSL kernel {release} is old", "from Windows: wsl --update")
    return ok(f"WSL kernel {release}")
