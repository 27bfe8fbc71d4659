"""The numbers that telemetry brings: one table, in which a field is one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpud.core.fields import FIELDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from gpud.core.sample import Reading

Numbers: TypeAlias = "Mapping[str, Mapping[int, float]]"
"""Present values by field, then by GPU."""

LARGEST = float(2**53)
"""No reading comes near it, every sentinel lies beyond, and a double is no longer exact there."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family: ``fields`` gives each field its value of ``label``, where there is one."""

    name: str
    asked: str  # the function of NVML
    fields: Mapping[str, str]
    label: str = ""


def _alone(field: str, name: str, asked: str) -> Family:
    return Family(name, asked, {field: ""})


FAMILIES = (
    _alone("memory_total_bytes", "gpud_gpu_memory_total_bytes", "nvmlDeviceGetMemoryInfo"),
    _alone("memory_used_bytes", "gpud_gpu_memory_used_bytes", "nvmlDeviceGetMemoryInfo"),
    _alone("memory_free_bytes", "gpud_gpu_memory_free_bytes", "nvmlDeviceGetMemoryInfo"),
    _alone("memory_reserved_bytes", "gpud_gpu_memory_reserved_bytes", "nvmlDeviceGetMemoryInfo_v2"),
    Family(
        "gpud_gpu_utilization_ratio",
        "nvmlDeviceGetUtilizationRates and its like for encoder and decoder, share of time busy",
        {
            "utilization_gpu_ratio": "gpu",
            "utilization_memory_ratio": "memory",
            "utilization_encoder_ratio": "encoder",
            "utilization_decoder_ratio": "decoder",
        },
        "unit",
    ),
    _alone("temperature_celsius", "gpud_gpu_temperature_celsius", "nvmlDeviceGetTemperature"),
    _alone(
        "temperature_memory_celsius",
        "gpud_gpu_memory_temperature_celsius",
        "nvmlDeviceGetFieldValues",
    ),
    Family(
        "gpud_gpu_temperature_threshold_celsius",
        "nvmlDeviceGetTemperatureThreshold",
        {"temperature_slowdown_celsius": "slowdown", "temperature_shutdown_celsius": "shutdown"},
        "threshold",
    ),
    _alone("power_watts", "gpud_gpu_power_watts", "nvmlDeviceGetPowerUsage"),
    _alone("power_limit_watts", "gpud_gpu_power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit"),
    _alone(
        "energy_joules_total",
        "gpud_gpu_energy_joules_total",
        "nvmlDeviceGetTotalEnergyConsumption",
    ),
    Family(
        "gpud_gpu_clock_hertz",
        "nvmlDeviceGetClockInfo",
        {
            "clock_graphics_hertz": "graphics",
            "clock_sm_hertz": "sm",
            "clock_memory_hertz": "memory",
            "clock_video_hertz": "video",
        },
        "clock",
    ),
    Family(
        "gpud_gpu_clock_max_hertz",
        "nvmlDeviceGetMaxClockInfo",
        {
            "clock_graphics_max_hertz": "graphics",
            "clock_sm_max_hertz": "sm",
            "clock_memory_max_hertz": "memory",
            "clock_video_max_hertz": "video",
        },
        "clock",
    ),
    _alone("pstate", "gpud_gpu_pstate", "nvmlDeviceGetPerformanceState, 0 is the fastest"),
    Family(
        "gpud_gpu_violation_seconds_total",
        "nvmlDeviceGetViolationStatus, time below the wanted clocks",
        {"power_violation_seconds_total": "power", "thermal_violation_seconds_total": "thermal"},
        "cause",
    ),
    _alone("pcie_generation", "gpud_gpu_pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    _alone(
        "pcie_generation_max",
        "gpud_gpu_pcie_generation_max",
        "nvmlDeviceGetMaxPcieLinkGeneration",
    ),
    _alone("pcie_width", "gpud_gpu_pcie_width", "nvmlDeviceGetCurrPcieLinkWidth, lanes"),
    _alone("pcie_width_max", "gpud_gpu_pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth, lanes"),
    _alone("pcie_replays_total", "gpud_gpu_pcie_replays_total", "nvmlDeviceGetPcieReplayCounter"),
    _alone(
        "pcie_sent_bytes_per_second",
        "gpud_gpu_pcie_sent_bytes_per_second",
        "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms",
    ),
    _alone(
        "pcie_received_bytes_per_second",
        "gpud_gpu_pcie_received_bytes_per_second",
        "nvmlDeviceGetPcieThroughput, by the GPU, over 20 ms",
    ),
    _alone(
        "fan_ratio", "gpud_gpu_fan_ratio", "nvmlDeviceGetFanSpeed, of the rated speed, may exceed 1"
    ),
    _alone(
        "ecc_corrected_total", "gpud_gpu_ecc_corrected_errors_total", "nvmlDeviceGetTotalEccErrors"
    ),
    _alone(
        "ecc_uncorrected_total",
        "gpud_gpu_ecc_uncorrected_errors_total",
        "nvmlDeviceGetTotalEccErrors",
    ),
    Family(
        "gpud_gpu_remapped_rows_total",
        "nvmlDeviceGetRemappedRows, memory rows by the errors that took them out of use",
        {
            "remapped_rows_correctable_total": "correctable",
            "remapped_rows_uncorrectable_total": "uncorrectable",
        },
        "cause",
    ),
    _alone(
        "remapped_rows_pending",
        "gpud_gpu_remapped_rows_pending",
        "nvmlDeviceGetRemappedRows, 1 while one waits for a reset of the GPU",
    ),
    _alone(
        "remapped_rows_failed",
        "gpud_gpu_remapped_rows_failed",
        "nvmlDeviceGetRemappedRows, 1 when one could not be remapped",
    ),
    _alone(
        "processes",
        "gpud_gpu_processes",
        "nvmlDeviceGetComputeRunningProcesses and its like for graphics, each process once",
    ),
    _alone(
        "xid_last", "gpud_gpu_xid_last", "nvmlEventSetWait, code of the last Xid, 0 for none yet"
    ),
)


def numbers(readings: Iterable[Reading]) -> Numbers:
    """Sort the numbers of GPUs by field; what has none is left out, and what is none of a GPU's."""
    found: dict[str, dict[int, float]] = {}
    for reading in readings:
        value = reading.value
        if reading.gpu is None or not isinstance(value, int | float) or not 0 <= value < LARGEST:
            continue
        found.setdefault(reading.field, {}).setdefault(reading.gpu, float(value))
    return found


def families(found: Numbers) -> Iterator[Metric]:
    """Yield every family of the table."""
    for row in FAMILIES:
        labels = ["gpu", row.label] if row.label else ["gpu"]
        text = f"NVML {row.asked}; may come from another source."
        counts = all(FIELDS[field].kind is Kind.COUNTER for field in row.fields)
        made = CounterMetricFamily if counts else GaugeMetricFamily
        family = made(row.name, text, labels=labels)
        for field, value_of_label in row.fields.items():
            for gpu, value in sorted(found.get(field, {}).items()):
                own = [str(gpu), value_of_label] if row.label else [str(gpu)]
                family.add_metric(own, value)
        yield family
