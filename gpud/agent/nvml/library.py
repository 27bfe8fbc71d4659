"""The NVML library: loaded by path, opened, and its refusals as reasons a person can act on."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from gpud.core.errors import TelemetryError

_OPENING: dict[int, tuple[str, str | None]] = {
    9: (
        "driver_not_loaded",
        "Windows replaced the driver while WSL ran, or the adapter changed: `wsl --shutdown`",
    ),
    12: ("library_missing", None),
    13: ("symbol_missing", "update the NVIDIA driver in Windows"),
    15: ("gpu_is_lost", "`wsl --shutdown`, then look at the Windows event log"),
    17: (
        "blocked_by_the_operating_system",
        (
            "the GPU is in TCC mode, a Linux driver package shadows WSL's, or the VM bus broke: "
            "remove nvidia packages from the distribution, then `wsl --shutdown`"
        ),
    ),
    18: ("driver_mismatch", "remove nvidia-utils from the distribution; WSL brings its own"),
}


def load(candidates: list[str]) -> None:
    """Open the library by the first path that works, so that ``pynvml`` finds it by its SONAME.

    Errors: ``TelemetryError`` with the loader's own words for every path tried.
    """
    words = []
    for path in candidates:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            words.append(str(error))
        else:
            return
    fix = "install or update the NVIDIA driver in Windows; WSL provides the library"
    if len(candidates) == 1:  # the configured path: no driver mends that
        fix = "correct [nvml] library in gpud.toml, or leave it out"
    raise TelemetryError("; ".join(dict.fromkeys(words)), reason="library_missing", fix=fix)


def open_() -> list[Any]:
    """Initialise NVML and give one handle per GPU. ``Errors: TelemetryError``."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except pynvml.NVMLError as error:
        reason, fix = _OPENING.get(error.value, ("failed", None))
        raise TelemetryError(f"NVML: {error} ({error.value})", reason=reason, fix=fix) from error
    # PCI order, as CUDA is told to count too: one index means one GPU in every series.
    return sorted(handles, key=_bus_order)


def _bus_order(handle: Any) -> str:  # noqa: ANN401  # an opaque pointer
    try:
        return str(pynvml.nvmlDeviceGetPciInfo(handle).busId)
    except pynvml.NVMLError:
        return ""
