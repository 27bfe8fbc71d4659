"""The kinds of causes of a change."""

from __future__ import annotations

from typing import Final

DRIVER, KERNEL, WINDOWS, WSL = "driver", "kernel", "windows", "wsl"
CUDA, NVML, FOLDER = "cuda", "nvml", "driver_folder"
POWER_LIMIT, PCIE, THROTTLE = "power_limit", "pcie", "throttle"
SM_CLOCK, MEMORY_CLOCK, BATTERY, MEMORY = "sm_clock", "memory_clock", "battery", "memory"
CLOCKSOURCE, LIBRARY, LOADING, PYTHON = "clocksource", "library", "loading", "python"
CPU_LOAD, DXG, CPU, NOTHING = "cpu_load", "dxg", "cpu", "nothing"
COMPILER = "compiler"

MACHINE: Final = "the CPU's probes slowed as well: the machine, not the GPU"

SAME_WORK_OF_A_CYCLE: Final = "a cycle does as much as before"

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
