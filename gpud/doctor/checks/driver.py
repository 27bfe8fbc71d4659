"""Check of the driver's version, which Windows replaces overnight, and of what it must fit."""

from __future__ import annotations

import re

from gpud.core.advice import Platform, Situation
from gpud.core.exposure import MARKS, PREFIX, STORE
from gpud.core.health import Level
from gpud.doctor import telemetry
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine
from gpud.doctor.telemetry import MachineTelemetry

TITLE = "driver"
ORDER = 90
SUMMARY = "the NVIDIA driver's version, its folders in Windows' store, and the kernel it must fit"
MAY_BLOCK = True  # the driver, and Windows' driver store
OLDEST_DRIVER = 495
"""The first Windows driver with CUDA on WSL. Source: NVIDIA's guide to CUDA on WSL."""
OLDEST_KERNEL = (5, 10)
MODULE = "/proc/driver/nvidia/version"
_LOADED = re.compile(r"NVRM version:.*?\s(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\s")


def look(machine: Machine) -> Finding:
    """Take the agent's readings, else those of its telemetry helper."""
    readings = telemetry.read(machine)
    if isinstance(readings, Finding):
        return readings
    version = _version(machine, readings)
    if machine.wsl == "2":
        folders, kernel = _folders(machine, readings.fact("driver_folder")), _kernel(machine.kernel)
        return combined(version, _one_driver(machine, readings), folders, kernel)
    return combined(version, _one_driver(machine, readings), _module(machine, readings))


def _version(machine: Machine, readings: MachineTelemetry) -> Finding:
    version = readings.fact("driver_version")
    if version is None:
        if machine.no_gpu is not None and not machine.settings.nvml.library:
            return ok(machine.no_gpu)
        return _no_version(machine, readings)
    major = re.match(r"[0-9]{1,6}", version)
    if machine.wsl == "2" and major is not None and int(major[0]) < OLDEST_DRIVER:
        evidence = f"driver {version}: CUDA in WSL began with {OLDEST_DRIVER}"
        return problem(evidence, machine.fix(Situation.TOO_OLD))
    library, cuda = readings.fact("nvml_version"), readings.fact("cuda_version")
    side = library if machine.wsl == "2" and library != version else None
    evidence = f"driver {version}{f' (WSL side {side})' if side else ''}"
    return ok(f"{evidence}{f', CUDA {cuda}' if cuda else ''}")


def _no_version(machine: Machine, readings: MachineTelemetry) -> Finding:
    """Say why there is no version; it is a problem where WSL offers a GPU, or if it is certain."""
    health, nvml, wsl = readings.health, readings.nvml, machine.wsl == "2"
    mismatch = nvml.reason == "driver_mismatch"
    if health is not None and health.level is Level.OK and health.detail:
        return ok(health.detail)
    if nvml.reason == "library_missing" and not wsl:
        return ok("no NVIDIA driver on this machine")
    if readings.gpu_seen and not mismatch:
        return unknown("its version is not known: the line on telemetry says why")
    detail = nvml.detail or "nobody gives the driver's version"
    if nvml.fix and (wsl or mismatch):
        return problem(detail, nvml.fix)
    return unknown(detail, nvml.fix)


def _one_driver(machine: Machine, readings: MachineTelemetry) -> Finding | None:
    """Compare libcuda's version of CUDA with NVML's: two versions are two drivers."""
    cuda = machine.agent.cuda.cuda_version if machine.agent.cuda else None
    nvml = readings.fact("cuda_version")
    if cuda is None or nvml is None or cuda == nvml:
        return None
    return advice(
        f"libcuda is of CUDA {cuda} and NVML of CUDA {nvml}: they are of two drivers",
        "the lines on libcuda and libnvidia-ml say which files are loaded; remove the stray one",
    )


def _folders(machine: Machine, used: str | None) -> Finding | None:
    """Name the driver's folders in Windows' store if there are several: one is in use."""
    folders = [
        name
        for name in machine.names(STORE)
        if name.lower().startswith(PREFIX)
        and any(machine.exists(f"{STORE}/{name}/{mark}") for mark in MARKS)
    ]
    if len(folders) < 2:  # noqa: PLR2004  # several
        return None
    which = f"{used} is in use" if used else "which is in use is not known"
    return ok(f"{len(folders)} drivers lie in Windows' store ({', '.join(folders[:4])}), {which}")


def _module(machine: Machine, readings: MachineTelemetry) -> Finding | None:
    """Compare the kernel's module with its libraries, on plain Linux."""
    module = _LOADED.search(machine.text(MODULE) or "")
    library = readings.fact("nvml_version") or readings.fact("driver_version")
    if module is None or library in {None, module[1]} or machine.platform is Platform.CONTAINER:
        return None
    evidence = f"the kernel's module is {module[1]} and its libraries are {library}"
    return problem(evidence, machine.fix(Situation.MISMATCH))


def _kernel(release: str) -> Finding:
    version = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if version is not None and (int(version[1]), int(version[2])) < OLDEST_KERNEL:
        return advice(f"WSL kernel {release} is old", "from Windows: wsl --update")
    return ok(f"WSL kernel {release}")
