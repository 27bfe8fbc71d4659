"""Table of every telemetry field, with the bounds of a plausible reading.

A source brings raw values; ``plausible`` lets a real one through and turns any other into its
reason. The suffix of a field's name is its unit (Prometheus's base units); only sources convert.
Sentinels are what NVML, DCGM and nvidia-smi write where there is no value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_TEXT: Final = 256

_PATTERN_START, _PATTERN_END = 0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFFF
SENTINELS: Final = frozenset(
    {2**64 - 1, 2**63, 2**32 - 1, 2**31 - 1, *range(_PATTERN_START, _PATTERN_END + 1)}
)
"""Numbers that stand for "no value", whatever is asked: DCGM's blank values are 2^63 - 1 down to
2^63 - 16, NVML's NVML_VALUE_NOT_AVAILABLE is 2^64 - 1, and 32-bit fields hold theirs."""

WORDS: Final[Mapping[str, Absent]] = {
    "": Absent.SENTINEL,
    "-": Absent.SENTINEL,
    "none": Absent.SENTINEL,
    "n/a": Absent.UNSUPPORTED,
    "not supported": Absent.UNSUPPORTED,
    "requested functionality has been deprecated": Absent.UNSUPPORTED,
    "insufficient permissions": Absent.NOT_PERMITTED,
    "err!": Absent.FAILED,
    "unknown error": Absent.FAILED,
    "gpu is lost": Absent.FAILED,
    "gpu requires reset": Absent.FAILED,
}
"""What nvidia-smi and NVML's strings say in place of a value, in lower case, bare or in []."""

WORDED: Final = frozenset({"throttle_reasons", "xids"})
"""Fields whose text is made by gpud, in which ``none`` is an answer."""


class FieldKind(StrEnum):
    """What a field's value is."""

    TEXT = "text"
    GAUGE = "gauge"
    COUNTER = "counter"  # only grows, until the driver is loaded anew


@dataclass(frozen=True, slots=True)
class Field:
    """One field. ``low`` and ``high`` are what a number can be; outside lies a sentinel.

    ``machine``: it is of the whole machine, and its readings have no GPU.
    """

    kind: FieldKind
    low: float = 0.0
    high: float = float(2**62)
    machine: bool = False


def _text(*, machine: bool = False) -> Field:
    return Field(FieldKind.TEXT, machine=machine)


def _gauge(high: float) -> Field:
    return Field(FieldKind.GAUGE, high=high)


_COUNTER = Field(FieldKind.COUNTER)
_BYTES = _gauge(float(2**50))
_RATIO = _gauge(1.0)
_CELSIUS = _gauge(150.0)
_WATTS = _gauge(10_000.0)
_HERTZ = _gauge(2e10)

FIELDS: Final[Mapping[str, Field]] = {
    # of the machine
    "driver_version": _text(machine=True),  # the Windows driver's where there is one: "595.71"
    "nvml_version": _text(machine=True),  # the library's own, in WSL another: "595.45.03"
    "cuda_version": _text(machine=True),  # the newest the driver offers: "12.8"
    "driver_folder": _text(machine=True),  # in Windows' driver store: a driver's fingerprint
    "exposed": _text(machine=True),  # "yes", "no", "disabled": whether WSL offers a GPU at all
    # identity
    "name": _text(),
    "uuid": _text(),
    "pci_bus_id": _text(),
    "vbios_version": _text(),
    "compute_capability": _text(),  # "8.9"
    # memory
    "memory_total_bytes": _BYTES,
    "memory_used_bytes": _BYTES,
    "memory_free_bytes": _BYTES,
    "memory_reserved_bytes": _BYTES,
    # utilisation: share of the time, 0..1
    "utilization_gpu_ratio": _RATIO,
    "utilization_memory_ratio": _RATIO,
    "utilization_encoder_ratio": _RATIO,
    "utilization_decoder_ratio": _RATIO,
    # temperature
    "temperature_celsius": _CELSIUS,
    "temperature_memory_celsius": _CELSIUS,
    "temperature_slowdown_celsius": _CELSIUS,  # where the GPU begins to throttle
    "temperature_shutdown_celsius": _CELSIUS,
    # power
    "power_watts": _WATTS,
    "power_limit_watts": _WATTS,  # the one in force
    "energy_joules_total": _COUNTER,
    # clocks
    "clock_graphics_hertz": _HERTZ,
    "clock_sm_hertz": _HERTZ,
    "clock_memory_hertz": _HERTZ,
    "clock_video_hertz": _HERTZ,
    "clock_graphics_max_hertz": _HERTZ,
    "clock_sm_max_hertz": _HERTZ,
    "clock_memory_max_hertz": _HERTZ,
    "clock_video_max_hertz": _HERTZ,
    "pstate": _gauge(15.0),  # 32 is NVML_PSTATE_UNKNOWN
    "throttle_reasons": _text(),  # words with commas, "none" for none
    "power_violation_seconds_total": _COUNTER,  # time below the wanted clocks for power
    "thermal_violation_seconds_total": _COUNTER,
    # the bus
    "pcie_generation": _gauge(16.0),
    "pcie_generation_max": _gauge(16.0),
    "pcie_width": _gauge(64.0),
    "pcie_width_max": _gauge(64.0),
    "pcie_replays_total": _COUNTER,
    "pcie_sent_bytes_per_second": _gauge(1e12),  # by the GPU; opt in, 20 ms each
    "pcie_received_bytes_per_second": _gauge(1e12),
    # health
    "fan_ratio": _gauge(2.0),  # of its rated speed, which it may exceed
    "ecc_mode": _text(),  # "enabled", "disabled"
    "ecc_corrected_total": _COUNTER,
    "ecc_uncorrected_total": _COUNTER,
    "remapped_rows_correctable_total": _COUNTER,
    "remapped_rows_uncorrectable_total": _COUNTER,
    "remapped_rows_pending": _RATIO,  # 0 or 1
    "remapped_rows_failed": _RATIO,  # 0 or 1
    "mig_mode": _text(),  # "enabled", "disabled"
    "processes": _gauge(100_000.0),  # with a context, compute and graphics; one is counted once
    "xids": _text(),  # since the agent started: "31:2,79:1", "none" for none
    "xid_last": _gauge(100_000.0),  # 0 while there was none
}


def scaled(raw: float, factor: float) -> float | Absent:
    """Convert a number to its base unit; a sentinel is only one before that."""
    if raw in SENTINELS or not math.isfinite(raw):
        return Absent.SENTINEL
    return raw * factor


def reason_of(text: str) -> Absent | None:
    """Return the reason that a text gives in place of a value; None for any other text."""
    words = text.lower()
    if words[:1] == "[" and words[-1:] == "]":
        words = words[1:-1]
    return WORDS.get(words)


def plausible(field: str, value: object) -> float | str | Absent:
    """Return a real value of ``field`` as a float or as text, and the reason for any other.

    ``value`` may be whatever a C ``unsigned long long``, a double or a cell of nvidia-smi can hold.
    Errors: ``KeyError`` for a field that is not in ``FIELDS``.
    """
    kind, low, high = FIELDS[field].kind, FIELDS[field].low, FIELDS[field].high
    if isinstance(value, Absent):
        return value
    if isinstance(value, bytes | str):
        text = (value.decode(errors="replace") if isinstance(value, bytes) else value).strip()
        reason = None if field in WORDED and text == "none" else reason_of(text)
        if reason is not None:
            return reason
        return text[:LONGEST_TEXT] if kind is FieldKind.TEXT else Absent.SENTINEL
    if kind is FieldKind.TEXT or isinstance(value, bool) or not isinstance(value, int | float):
        return Absent.SENTINEL
    if value in SENTINELS or not low <= value <= high:  # NaN lies nowhere
        return Absent.SENTINEL
    return float(value)


THROTTLE_REASONS: Final = (
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
"""By bit. Source: nvml.h, nvmlClocksEventReasons and, for the last two, the older
nvmlClocksThrottleReasons."""

UNKNOWN_REASON: Final = "unknown"
"""The word for a bit that none of these stands for."""


def throttle_words(bits: int) -> str:
    """Name the bits in their order, with commas; ``none`` for none, ``unknown`` for a foreign one.

    A sentinel gives nothing, which is how an empty text is read.
    """
    if bits in SENTINELS:
        return ""
    named = [word for bit, word in enumerate(THROTTLE_REASONS) if bits >> bit & 1]
    if bits >> len(THROTTLE_REASONS):
        named.append(UNKNOWN_REASON)
    return ",".join(named) or "none"
