"""The calls that each field is made of, and how their answer becomes its value in base units.

Units: the suffix of the field's name, converted here and nowhere else. Source: nvml.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pynvml

from gpud.agent.telemetry.nvml.calls import Call
from gpud.core import fields, throttle
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UUID = Call("nvmlDeviceGetUUID", once=True)
MODES = ("disabled", "enabled")
MOST_CUDA = 1_000_000  # 12080 is 12.8
MOST_CAPABILITY = 100


@dataclass(frozen=True, slots=True)
class Query:
    """How one field is asked for.

    Of each of ``groups``, the first call that the driver knows at all answers; ``value`` is given
    the answers of all groups that have one.
    """

    groups: tuple[tuple[Call, ...], ...]
    value: Callable[[Sequence[Any]], object]


def calls(queries: dict[str, Query]) -> Iterator[Call]:
    """Give every call that ``queries`` can make, each once, in order."""
    yield from dict.fromkeys(
        call for query in queries.values() for group in query.groups for call in group
    )


def _first(*group: Call, value: Callable[[Any], object] = lambda answer: answer) -> Query:
    return Query((group,), lambda answers: value(answers[0]))


def _per(divisor: float) -> Callable[[Any], object]:
    """Divide a number; a sentinel is only one before that. Dividing keeps 57 % at 0.57."""

    def divided(raw: float) -> float | Absent:
        number = fields.scaled(raw, 1.0)
        return number if isinstance(number, Absent) else number / divisor

    return divided


def _times(factor: float) -> Callable[[Any], object]:
    return lambda raw: fields.scaled(raw, factor)


def _member(name: str, value: Callable[[Any], object] = lambda raw: raw) -> Callable[[Any], object]:
    return lambda answer: value(answer[name])


def _mode(answer: dict[str, int]) -> str | Absent:
    current = answer["current"]
    return MODES[current] if 0 <= current < len(MODES) else Absent.SENTINEL


def _library_version(text: str) -> str | Absent:
    """Take off the number of the API: "12.572.16" is the library of 572.16."""
    return text.partition(".")[2] or Absent.SENTINEL


def _cuda_version(number: int) -> str | Absent:
    if not 0 < number < MOST_CUDA:
        return Absent.SENTINEL
    return f"{number // 1000}.{number % 1000 // 10}"


def _capability(answer: dict[str, int]) -> str | Absent:
    major, minor = answer["major"], answer["minor"]
    if not (0 < major < MOST_CAPABILITY and 0 <= minor < MOST_CAPABILITY):
        return Absent.SENTINEL
    return f"{major}.{minor}"


def _memory(member: str) -> Query:
    """Ask the form that tells what the driver keeps for itself; the older one counts it as used."""
    older = () if member == "reserved" else (Call("nvmlDeviceGetMemoryInfo"),)
    return _first(
        Call("nvmlDeviceGetMemoryInfo_v2", (pynvml.nvmlMemory_v2,)), *older, value=_member(member)
    )


def _clock(kind: int) -> Query:
    return _first(Call("nvmlDeviceGetClockInfo", (kind,)), value=_times(1e6))  # NVML: MHz


def _max_clock(kind: int) -> Query:
    return _first(Call("nvmlDeviceGetMaxClockInfo", (kind,), once=True), value=_times(1e6))


def _threshold(kind: int) -> Query:
    return _first(Call("nvmlDeviceGetTemperatureThreshold", (kind,), once=True))


def _violation(policy: int) -> Query:
    call = Call("nvmlDeviceGetViolationStatus", (policy,))
    return _first(call, value=_member("violationTime", _per(1e9)))  # NVML: nanoseconds


def _coder(function: str) -> Query:
    return _first(
        Call(function, members=("utilization", "samplingPeriodUs")),
        value=_member("utilization", _per(100)),
    )


def _ecc_total(kind: int) -> Query:
    """Ask for what the board has kept since it was made, else for what was since the last boot."""
    return _first(
        Call("nvmlDeviceGetTotalEccErrors", (kind, pynvml.NVML_AGGREGATE_ECC)),
        Call("nvmlDeviceGetTotalEccErrors", (kind, pynvml.NVML_VOLATILE_ECC)),
    )


def _rows(member: str) -> Query:
    members = ("correctable", "uncorrectable", "pending", "failed")
    return _first(Call("nvmlDeviceGetRemappedRows", members=members), value=_member(member))


def _throughput(counter: int) -> Query:
    return _first(Call("nvmlDeviceGetPcieThroughput", (counter,)), value=_times(1e3))  # NVML: KB/s


_PROCESSES = Query(
    tuple(
        tuple(Call(f"nvmlDeviceGet{kind}RunningProcesses_{version}") for version in ("v3", "v2"))
        for kind in ("Compute", "Graphics", "MPSCompute")
    ),
    lambda lists: len({process for processes in lists for process in processes}),
)

MACHINE: dict[str, Query] = {
    "driver_version": _first(Call("nvmlSystemGetDriverVersion")),
    "nvml_version": _first(Call("nvmlSystemGetNVMLVersion", once=True), value=_library_version),
    "cuda_version": _first(
        Call("nvmlSystemGetCudaDriverVersion_v2", once=True),
        Call("nvmlSystemGetCudaDriverVersion", once=True),
        value=_cuda_version,
    ),
}

GPU: dict[str, Query] = {
    "name": _first(Call("nvmlDeviceGetName", once=True)),
    "uuid": _first(UUID),
    "pci_bus_id": _first(Call("nvmlDeviceGetPciInfo_v3", once=True), value=_member("busId")),
    "vbios_version": _first(Call("nvmlDeviceGetVbiosVersion", once=True)),
    "compute_capability": _first(
        Call("nvmlDeviceGetCudaComputeCapability", members=("major", "minor"), once=True),
        value=_capability,
    ),
    "memory_total_bytes": _memory("total"),
    "memory_used_bytes": _memory("used"),
    "memory_free_bytes": _memory("free"),
    "memory_reserved_bytes": _memory("reserved"),
    "utilization_gpu_ratio": _first(
        Call("nvmlDeviceGetUtilizationRates"), value=_member("gpu", _per(100))
    ),
    "utilization_memory_ratio": _first(
        Call("nvmlDeviceGetUtilizationRates"), value=_member("memory", _per(100))
    ),
    "utilization_encoder_ratio": _coder("nvmlDeviceGetEncoderUtilization"),
    "utilization_decoder_ratio": _coder("nvmlDeviceGetDecoderUtilization"),
    "temperature_celsius": _first(
        Call("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
        Call("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    ),
    "temperature_memory_celsius": _first(  # boards with HBM
        Call("nvmlDeviceGetFieldValues", (pynvml.NVML_FI_DEV_MEMORY_TEMP,))
    ),
    "temperature_slowdown_celsius": _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "temperature_shutdown_celsius": _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    "power_watts": _first(Call("nvmlDeviceGetPowerUsage"), value=_per(1e3)),  # NVML: milliwatts
    "power_limit_watts": _first(Call("nvmlDeviceGetEnforcedPowerLimit"), value=_per(1e3)),
    "energy_joules_total": _first(Call("nvmlDeviceGetTotalEnergyConsumption"), value=_per(1e3)),
    "clock_graphics_hertz": _clock(pynvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_hertz": _clock(pynvml.NVML_CLOCK_SM),
    "clock_memory_hertz": _clock(pynvml.NVML_CLOCK_MEM),
    "clock_video_hertz": _clock(pynvml.NVML_CLOCK_VIDEO),
    "clock_graphics_max_hertz": _max_clock(pynvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_max_hertz": _max_clock(pynvml.NVML_CLOCK_SM),
    "clock_memory_max_hertz": _max_clock(pynvml.NVML_CLOCK_MEM),
    "clock_video_max_hertz": _max_clock(pynvml.NVML_CLOCK_VIDEO),
    "pstate": _first(Call("nvmlDeviceGetPerformanceState")),
    "throttle_reasons": _first(
        Call("nvmlDeviceGetCurrentClocksEventReasons"),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons"),  # before R535
        value=throttle.words,
    ),
    "power_violation_seconds_total": _violation(pynvml.NVML_PERF_POLICY_POWER),
    "thermal_violation_seconds_total": _violation(pynvml.NVML_PERF_POLICY_THERMAL),
    "pcie_generation": _first(Call("nvmlDeviceGetCurrPcieLinkGeneration")),
    "pcie_generation_max": _first(Call("nvmlDeviceGetMaxPcieLinkGeneration", once=True)),
    "pcie_width": _first(Call("nvmlDeviceGetCurrPcieLinkWidth")),
    "pcie_width_max": _first(Call("nvmlDeviceGetMaxPcieLinkWidth", once=True)),
    "pcie_replays_total": _first(Call("nvmlDeviceGetPcieReplayCounter")),
    "fan_ratio": _first(Call("nvmlDeviceGetFanSpeed"), value=_per(100)),
    "ecc_mode": _first(Call("nvmlDeviceGetEccMode", members=("current", "pending")), value=_mode),
    "ecc_corrected_total": _ecc_total(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected_total": _ecc_total(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "remapped_rows_correctable_total": _rows("correctable"),
    "remapped_rows_uncorrectable_total": _rows("uncorrectable"),
    "remapped_rows_pending": _rows("pending"),
    "remapped_rows_failed": _rows("failed"),
    "mig_mode": _first(Call("nvmlDeviceGetMigMode", members=("current", "pending")), value=_mode),
    "processes": _PROCESSES,
}

THROUGHPUT: dict[str, Query] = {
    "pcie_sent_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_TX_BYTES),
    "pcie_received_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_RX_BYTES),
}
"""Asked only where the settings say so: NVML counts for 20 ms at each."""

NO_THROUGHPUT = dict.fromkeys(THROUGHPUT, Query((), lambda _: Absent.NOT_ASKED))
