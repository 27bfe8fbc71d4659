"""Telemetry sources by level, and their names for people."""

from __future__ import annotations

from typing import Final

LEVELS: Final = ("nothing", "dxg", "cuda", "nvidia_smi", "nvidia_smi_exe", "nvml")
"""The number behind ``gpud_telemetry_level`` is the place here of the best source that answers."""

NAMES: Final = {
    "nvml": "NVML",
    "nvidia_smi_exe": "nvidia-smi.exe",
    "nvidia_smi": "nvidia-smi",
    "cuda": "CUDA",
    "dxg": "/dev/dxg",
}
"""The sources' names for people."""

SEES_A_GPU: Final = 2
"""From this level on, a source reads the GPU itself and not only whether there may be one."""
