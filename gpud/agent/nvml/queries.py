"""NVML through nvidia-ml-py: every field asked for on its own, each a value or a reason.

Source: NVML's C API as ``pynvml`` wraps it. Its errors are never compared or hashed (they cannot
be): only their ``value`` is read.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "nvml"
"""The source of every reading, as the metrics name it."""

SENTINELS = frozenset({2**64 - 1, 2**63 - 1, 2**63 - 14, 2**32 - 1, 2**31 - 1})
"""What NVML and DCGM write where there is no value: never a reading of anything we ask for."""


def _clock(kind: int) -> Callable[[Any], float]:
    return lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, kind) * 1e6  # NVML: MHz


THROTTLE_WORDS = (
    "idle",
    "set_clocks",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
    "board_limit",
    "reliability",
)
"""What holds the clocks down, by bit. Source: nvml.h, nvmlClocksEventReasons and, for the last two,
the older nvmlClocksThrottleReasons."""


def throttle_words(bits: int) -> str:
    """Name the bits in their order, with commas; ``none`` for none, ``unknown`` for a foreign one.

    A sentinel gives nothing, which is how an empty text is read.
    """
    if bits in SENTINELS:
        return ""
    words = [word for bit, word in enumerate(THROTTLE_WORDS) if bits >> bit & 1]
    if bits >> len(THROTTLE_WORDS):
        words.append("unknown")
    return ",".join(words) or "none"


def _throttle_reasons(gpu: Any) -> str:  # noqa: ANN401  # an opaque pointer
    try:
        return throttle_words(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return throttle_words(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))  # before R535


FIELDS: dict[str, Callable[[Any], Any]] = {
    "name": pynvml.nvmlDeviceGetName,
    "uuid": pynvml.nvmlDeviceGetUUID,
    "pci_bus_id": lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId,
    "driver_version": lambda _: pynvml.nvmlSystemGetDriverVersion(),
    "memory_total_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).total,
    "memory_used_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "memory_free_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).free,
    "temperature_celsius": lambda gpu: pynvml.nvmlDeviceGetTemperature(
        gpu, pynvml.NVML_TEMPERATURE_GPU
    ),
    "power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,  # NVML: milliwatts
    "power_limit_watts": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "energy_joules_total": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "clock_graphics_hertz": _clock(pynvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_hertz": _clock(pynvml.NVML_CLOCK_SM),
    "clock_memory_hertz": _clock(pynvml.NVML_CLOCK_MEM),
    "pstate": pynvml.nvmlDeviceGetPerformanceState,
    "utilization_gpu_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "utilization_memory_ratio": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory / 100,
    "throttle_reasons": _throttle_reasons,
}
"""Units: the suffix of the field's name, converted here and nowhere else."""

LIMITS: dict[str, tuple[float, float]] = {
    "temperature_celsius": (0, 150),
    "power_watts": (0, 10_000),
    "power_limit_watts": (0, 10_000),
    "pstate": (0, 15),  # 32 is NVML_PSTATE_UNKNOWN
    "utilization_gpu_ratio": (0, 1),
    "utilization_memory_ratio": (0, 1),
}
"""What a reading can be at all; outside lies a sentinel nobody documented."""


def read(handles: list[Any]) -> Iterator[Reading]:
    """Ask for every entry of ``FIELDS`` of every GPU, in order; absent ones are yielded too.

    Errors: ``TelemetryError`` when a GPU is lost; any other refusal is an ``Absent``.
    """
    for index, handle in enumerate(handles):
        for field, query in FIELDS.items():
            yield reading(index, field, partial(query, handle))


def reading(gpu: int, field: str, query: Callable[[], Any]) -> Reading:
    """Make one query a value or a reason."""
    try:
        value = query()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise TelemetryError(f"GPU {gpu}: {error}", reason="gpu_is_lost") from error
        return Reading(gpu, field, _why(error.value), NAME, str(error))
    return Reading(gpu, field, plausible(field, value), NAME)


def plausible(field: str, value: Any) -> float | str | Absent:  # noqa: ANN401  # whatever C held
    """Let a real value through; a sentinel, a NaN or an impossible figure becomes its reason."""
    if isinstance(value, bytes | str):
        return _text(value) or Absent.SENTINEL
    low, high = LIMITS.get(field, (0, 2**62))
    number = float(value)
    if value in SENTINELS or not math.isfinite(number) or not low <= number <= high:
        return Absent.SENTINEL
    return number


def _why(code: int) -> Absent:
    if code in {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
        return Absent.UNSUPPORTED  # WSL2 withholds several fields: normal there
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return Absent.NOT_PERMITTED
    return Absent.FAILED


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
