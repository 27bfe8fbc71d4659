"""Table of every telemetry field, with the bounds of a plausible reading.

A source brings raw values; ``plausible`` lets a real one through and turns any other into its
reason. The suffix of a field's name is its unit (Prometheus's base units); only sources convert.
One that ends in ``_total`` only grows, until the driver is loaded anew. Sentinels are what NVML,
DCGM and nvidia-smi write where there is no value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Field:
    """One field: a text, or a number from 0 to ``high``; outside lies a sentinel.

    ``machine``: it is of the whole machine, and its readings have no GPU.
    """

    high: float = float(2**62)
    text: bool = False
    machine: bool = False


_TEXT = Field(text=True)
_OF_MACHINE = Field(text=True, machine=True)
_COUNTER = Field()
_BYTES = Field(float(2**50))
_RATIO = Field(1.0)
_CELSIUS = Field(150.0)
_WATTS = Field(10_000.0)
_HERTZ = Field(2e10)

FIELDS: Final[Mapping[str, Field]] = {
    # of the machine
    "driver_version": _OF_MACHINE,  # the Windows driver's where there is one: "595.71"
    "nvml_version": _OF_MACHINE,  # the library's own, in WSL another: "595.45.03"
    "cuda_version": _OF_MACHINE,  # the newest the driver offers: "12.8"
    "driver_folder": _OF_MACHINE,  # in Windows' driver store: a driver's fingerprint
    "exposed": _OF_MACHINE,  # "yes", "no", "disabled": whether WSL offers a GPU at all
    # identity
    "name": _TEXT,
    "uuid": _TEXT,
    "pci_bus_id": _TEXT,
    "vbios_version": _TEXT,
    "compute_capability": _TEXT,  # "8.9"
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
    "pstate": Field(15.0),  # 32 is NVML_PSTATE_UNKNOWN
    "throttle_reasons": _TEXT,  # words with commas, "none" for none
    "power_violation_seconds_total": _COUNTER,  # time below the wanted clocks for power
    "thermal_violation_seconds_total": _COUNTER,
    # the bus
    "pcie_generation": Field(16.0),
    "pcie_generation_max": Field(16.0),
    "pcie_width": Field(64.0),
    "pcie_width_max": Field(64.0),
    "pcie_replays_total": _COUNTER,
    "pcie_sent_bytes_per_second": Field(1e12),  # by the GPU; opt in, 20 ms each
    "pcie_received_bytes_per_second": Field(1e12),
    # health
    "fan_ratio": Field(2.0),  # of its rated speed, which it may exceed
    "ecc_mode": _TEXT,  # "enabled", "disabled"
    "ecc_corrected_total": _COUNTER,
    "ecc_uncorrected_total": _COUNTER,
    "remapped_rows_correctable_total": _COUNTER,
    "remapped_rows_uncorrectable_total": _COUNTER,
    "remapped_rows_pending": _RATIO,  # 0 or 1
    "remapped_rows_failed": _RATIO,  # 0 or 1
    "mig_mode": _TEXT,  # "enabled", "disabled"
    "processes": Field(100_000.0),  # with a context, compute and graphics; one is counted once
    "xids": _TEXT,  # since the agent started: "31:2,79:1", "none" for none
    "xid_last": Field(100_000.0),  # 0 while there was none
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
    if isinstance(value, Absent):
        return value
    if isinstance(value, bytes | str):
        text = (value.decode(errors="replace") if isinstance(value, bytes) else value).strip()
        reason = None if field in WORDED and text == "none" else reason_of(text)
        if reason is not None:
            return reason
        return text[:LONGEST_TEXT] if FIELDS[field].text else Absent.SENTINEL
    if FIELDS[field].text or isinstance(value, bool) or not isinstance(value, int | float):
        return Absent.SENTINEL
    if value in SENTINELS or not 0 <= value <= FIELDS[field].high:  # NaN lies nowhere
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
