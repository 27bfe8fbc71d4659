"""The kinds of causes of a change, and their names for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpud.core.alerts import Cause

DRIVER, KERNEL, WINDOWS, WSL = "driver", "kernel", "windows", "wsl"
CUDA, NVML, FOLDER = "cuda", "nvml", "driver_folder"
POWER_LIMIT, PCIE, THROTTLE = "power_limit", "pcie", "throttle"
SM_CLOCK, MEMORY_CLOCK, BATTERY, MEMORY = "sm_clock", "memory_clock", "battery", "memory"
CLOCKSOURCE, LIBRARY, LOADING, PYTHON = "clocksource", "library", "loading", "python"
CPU_LOAD, DXG, CPU, NOTHING = "cpu_load", "dxg", "cpu", "nothing"

MACHINE: Final = "the CPU's probes slowed as well: the machine, not the GPU"

OF_CHANGES: Final = {
    "driver_version": DRIVER,
    "kernel": KERNEL,
    "windows_build": WINDOWS,
    "wsl_version": WSL,
    "cuda_version": CUDA,
    "nvml_version": NVML,
    "driver_folder": FOLDER,
}
"""Changes of driver and machine as causes, the most telling first."""

OF_THE_DRIVER: Final = frozenset({DRIVER, CUDA, NVML, FOLDER})
"""The driver and what comes with it: these show a new driver whose version is not known."""

WORDS: Final = {
    DRIVER: "driver",
    KERNEL: "kernel",
    WINDOWS: "Windows",
    WSL: "WSL",
    CUDA: "CUDA",
    NVML: "NVML",
    FOLDER: "driver folder",
    POWER_LIMIT: "power limit",
    PCIE: "PCIe link",
    THROTTLE: "clocks held down",
    SM_CLOCK: "SM clock",
    MEMORY_CLOCK: "memory clock",
    BATTERY: "power",
    MEMORY: "free GPU memory",
    CLOCKSOURCE: "clock source",
    LIBRARY: "CUDA library",
    LOADING: "module loading",
    PYTHON: "Python",
    CPU_LOAD: "load of the CPU",
    DXG: "the channel to Windows",
    CPU: "the machine",
}


def words(cause: Cause) -> str:
    """Write a cause for a person: "driver 572.16 -> 576.02"."""
    if cause.old is None and cause.new is None:
        return cause.detail or WORDS.get(cause.kind, cause.kind)
    moved = f"{cause.old or 'unknown'} -> {cause.new or 'unknown'}"
    text = f"{WORDS.get(cause.kind, cause.kind.replace('_', ' '))} {moved}"
    return f"{text} ({cause.detail})" if cause.detail else text
