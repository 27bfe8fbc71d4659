"""The readings of telemetry: numbers by one table, in which a field is one line, and words.

A word is one series of 1 or 0 for each of its values; an unknown word is skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gpud.agent.serve.metrics.families import counters, gauges
from gpud.agent.telemetry import fields
from gpud.agent.telemetry.fields import FIELDS, LONGEST_TEXT, FieldKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.core.sample import Reading

Numbers: TypeAlias = "Mapping[str, Mapping[int, float]]"
"""Present values by field, then by GPU."""

LARGEST: Final = float(2**53)
"""No reading comes near it, every sentinel lies beyond, and a double is no longer exact there."""
TEXT: Final = "NVML {}; may come from another source."
SWITCHES: Final = {
    "ecc_mode": ("gpud_gpu_ecc_enabled", "nvmlDeviceGetEccMode"),
    "mig_mode": ("gpud_gpu_mig_enabled", "nvmlDeviceGetMigMode"),
}
POSITIONS: Final = {"enabled": 1.0, "disabled": 0.0}
EXPOSED: Final = ("yes", "no", "disabled")
_XID: Final = re.compile(r"([0-9]{1,5}):([0-9]{1,15})")  # a double holds so many digits exactly


class Family(NamedTuple):
    """A family: ``fields`` gives each field its value of ``label``; without one there is no label.

    ``asked`` is the function of NVML.
    """

    name: str
    asked: str
    fields: Mapping[str, str]
    label: str = ""


def _field(field: str, asked: str, name: str = "") -> Family:
    """Return the family of one field, whose name it has unless another one is given."""
    return Family(f"gpud_gpu_{name or field}", asked, {field: ""})


FAMILIES: Final = (
    _field("memory_total_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_used_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_free_bytes", "nvmlDeviceGetMemoryInfo"),
    _field("memory_reserved_bytes", "nvmlDeviceGetMemoryInfo_v2"),
    Family(
        "gpud_gpu_utilization_ratio",
        "nvmlDeviceGetUtilizationRates and its like for encoder and decoder, share of time busy",
        {f"utilization_{unit}_ratio": unit for unit in ("gpu", "memory", "encoder", "decoder")},
        "unit",
    ),
    _field("temperature_celsius", "nvmlDeviceGetTemperature"),
    _field("temperature_memory_celsius", "nvmlDeviceGetFieldValues", "memory_temperature_celsius"),
    Family(
        "gpud_gpu_temperature_threshold_celsius",
        "nvmlDeviceGetTemperatureThreshold",
        {"temperature_slowdown_celsius": "slowdown", "temperature_shutdown_celsius": "shutdown"},
        "threshold",
    ),
    _field("power_watts", "nvmlDeviceGetPowerUsage"),
    _field("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit"),
    _field("energy_joules_total", "nvmlDeviceGetTotalEnergyConsumption"),
    Family(
        "gpud_gpu_clock_hertz",
        "nvmlDeviceGetClockInfo",
        {f"clock_{clock}_hertz": clock for clock in ("graphics", "sm", "memory", "video")},
        "clock",
    ),
    Family(
        "gpud_gpu_clock_max_hertz",
        "nvmlDeviceGetMaxClockInfo",
        {f"clock_{clock}_max_hertz": clock for clock in ("graphics", "sm", "memory", "video")},
        "clock",
    ),
    _field("pstate", "nvmlDeviceGetPerformanceState, 0 is the fastest"),
    Family(
        "gpud_gpu_violation_seconds_total",
        "nvmlDeviceGetViolationStatus, time below the wanted clocks",
        {f"{cause}_violation_seconds_total": cause for cause in ("power", "thermal")},
        "cause",
    ),
    _field("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _field("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    _field("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth, lanes"),
    _field("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth, lanes"),
    _field("pcie_replays_total", "nvmlDeviceGetPcieReplayCounter"),
    _field("pcie_sent_bytes_per_second", "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms"),
    _field("pcie_received_bytes_per_second", "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms"),
    _field("fan_ratio", "nvmlDeviceGetFanSpeed, of the rated speed, may exceed 1"),
    _field("ecc_corrected_total", "nvmlDeviceGetTotalEccErrors", "ecc_corrected_errors_total"),
    _field("ecc_uncorrected_total", "nvmlDeviceGetTotalEccErrors", "ecc_uncorrected_errors_total"),
    Family(
        "gpud_gpu_remapped_rows_total",
        "nvmlDeviceGetRemappedRows, memory rows by the errors that took them out of use",
        {f"remapped_rows_{cause}_total": cause for cause in ("correctable", "uncorrectable")},
        "cause",
    ),
    _field(
        "remapped_rows_pending",
        "nvmlDeviceGetRemappedRows, 1 while one waits for a reset of the GPU",
    ),
    _field("remapped_rows_failed", "nvmlDeviceGetRemappedRows, 1 when one could not be remapped"),
    _field(
        "processes",
        "nvmlDeviceGetComputeRunningProcesses and its like for graphics, each process once",
    ),
    _field("xid_last", "nvmlEventSetWait, code of the last Xid, 0 for none yet"),
)


def numbers(readings: Iterable[Reading]) -> Numbers:
    """Sort the numbers of GPUs by field; what is implausible is skipped."""
    values: dict[str, dict[int, float]] = {}
    for reading in readings:
        value = reading.value
        if reading.gpu is None or not isinstance(value, int | float) or not 0 <= value < LARGEST:
            continue
        values.setdefault(reading.field, {}).setdefault(reading.gpu, float(value))
    return values


def families(values: Numbers) -> Iterator[Metric]:
    """Yield every family of the table."""
    for row in FAMILIES:
        counts = all(FIELDS[field].kind is FieldKind.COUNTER for field in row.fields)
        yield (counters if counts else gauges)(
            row.name,
            TEXT.format(row.asked),
            ("gpu", row.label) if row.label else ("gpu",),
            (
                ((str(gpu), label) if label else (str(gpu),), value)
                for field, label in row.fields.items()
                for gpu, value in sorted(values.get(field, {}).items())
            ),
        )


def states(readings: Iterable[Reading]) -> Iterator[Metric]:
    """Yield the families of words: modes, reasons to throttle, Xids."""
    words: dict[str, dict[int | None, str]] = {}
    for reading in readings:
        if type(reading.value) is str:
            words.setdefault(reading.field, {}).setdefault(reading.gpu, reading.value)
    exposed = words.get("exposed", {}).get(None)
    yield gauges(
        "gpud_gpu_exposed",
        "1 for whether the system offers a GPU at all: /dev/dxg in WSL, a PCI device elsewhere.",
        ("state",),
        (([state], state == exposed) for state in EXPOSED if exposed in EXPOSED),
    )
    for field, (name, asked) in SWITCHES.items():
        positions = _by_gpu(words, field)
        yield gauges(
            name,
            TEXT.format(asked),
            ("gpu",),
            (([gpu], POSITIONS.get(position)) for gpu, position in positions),
        )
    reasons = {gpu: set(text.split(",")) for gpu, text in _by_gpu(words, "throttle_reasons")}
    for holding in reasons.values():
        if holding - {"none", *fields.THROTTLE_REASONS}:
            holding.add(fields.UNKNOWN_REASON)
    yield gauges(
        "gpud_gpu_throttle_reason",
        "NVML nvmlDeviceGetCurrentClocksEventReasons, 1 for each reason that holds the clocks "
        "down; may come from another source.",
        ("gpu", "reason"),
        (
            ([gpu, reason], reason in holding)
            for gpu, holding in reasons.items()
            for reason in (*fields.THROTTLE_REASONS, fields.UNKNOWN_REASON)
        ),
    )
    yield counters(
        "gpud_gpu_xid_errors",
        "NVML nvmlEventSetWait, critical errors by their Xid since the agent started.",
        ("gpu", "xid"),
        (
            ([gpu, str(code)], count)
            for gpu, text in _by_gpu(words, "xids")
            for code, count in sorted(_xids(text).items())
        ),
    )


def _xids(text: str) -> dict[int, int]:
    """Read "79:1,31:2" as the number of errors by code."""
    parts = text.split(",")
    if len(text) >= LONGEST_TEXT:
        parts.pop()  # it was cut there, and its count may have lost digits
    counts = dict[int, int]()
    for part in parts:
        if match := _XID.fullmatch(part):
            counts.setdefault(int(match[1]), int(match[2]))
    return counts


def _by_gpu(words: Mapping[str, Mapping[int | None, str]], field: str) -> list[tuple[str, str]]:
    texts = ((gpu, text) for gpu, text in words.get(field, {}).items() if gpu is not None)
    return [(str(gpu), text) for gpu, text in sorted(texts)]
