"""The calls that each field is made of, and how their answer becomes its value in base units.

Units: the suffix of the field's name, converted here and nowhere else. Source: nvml.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pynvml

from gpud.agent.telemetry import fields
from gpud.agent.telemetry.nvml.calls import PROCESS_LISTS, NvmlCall
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class NvmlQuery:
    """How one field is asked for.

    Of each of ``groups``, the first call that the driver has at all answers; ``value`` is given
    the answers of all groups that have one.
    """

    groups: tuple[tuple[NvmlCall, ...], ...]
    value: Callable[[Sequence[Any]], object]


def calls(queries: Mapping[str, NvmlQuery]) -> Iterator[NvmlCall]:
    """Return every call that ``queries`` can make, each once, in order."""
    yield from dict.fromkeys(
        call for query in queries.values() for group in query.groups for call in group
    )


def _same(answer: Any) -> Any:  # noqa: ANN401  # as C gave it
    return answer


def _query(*group: NvmlCall, member: str = "", value: Callable[[Any], object] = _same) -> NvmlQuery:
    """Return the query that converts the answer of the first call, or a member of it."""
    if member:
        return NvmlQuery((group,), lambda answers: value(answers[0][member]))
    return NvmlQuery((group,), lambda answers: value(answers[0]))


def _unit(*, times: float = 1.0, per: float = 1.0) -> Callable[[Any], object]:
    """Convert a number; a sentinel is only one before that. Dividing keeps 57 % at 0.57."""

    def converted(raw: float) -> float | Absent:
        number = fields.scaled(raw, times)
        return number if isinstance(number, Absent) else number / per

    return converted


_RATIO, _MILLI, _MEGA = _unit(per=100), _unit(per=1e3), _unit(times=1e6)


def _mode(number: int) -> str | Absent:
    return {0: "disabled", 1: "enabled"}.get(number, Absent.SENTINEL)


def _library_version(text: str) -> str | Absent:
    """Take off the number of the API: "12.572.16" is the library of 572.16."""
    return text.partition(".")[2] or Absent.SENTINEL


def _cuda_version(number: int) -> str | Absent:
    if not 0 < number < 1_000_000:  # 12080 is 12.8  # noqa: PLR2004
        return Absent.SENTINEL
    return f"{number // 1000}.{number % 1000 // 10}"


def _capability(answer: dict[str, int]) -> str | Absent:
    major, minor = answer["major"], answer["minor"]
    if not (0 < major < 100 and 0 <= minor < 100):  # noqa: PLR2004
        return Absent.SENTINEL
    return f"{major}.{minor}"


def _memory(member: str) -> NvmlQuery:
    """Ask the form that tells what the driver keeps for itself; the older one counts it as used."""
    newer = NvmlCall("nvmlDeviceGetMemoryInfo_v2", (pynvml.nvmlMemory_v2,))
    older = () if member == "reserved" else (NvmlCall("nvmlDeviceGetMemoryInfo"),)
    return _query(newer, *older, member=member)


def _clock(kind: int, function: str = "nvmlDeviceGetClockInfo", *, once: bool = False) -> NvmlQuery:
    return _query(NvmlCall(function, (kind,), once=once), value=_MEGA)  # NVML: MHz


def _max_clock(kind: int) -> NvmlQuery:
    return _clock(kind, "nvmlDeviceGetMaxClockInfo", once=True)


def _threshold(kind: int) -> NvmlQuery:
    return _query(NvmlCall("nvmlDeviceGetTemperatureThreshold", (kind,), once=True))


def _violation(policy: int) -> NvmlQuery:
    call = NvmlCall("nvmlDeviceGetViolationStatus", (policy,))
    return _query(call, member="violationTime", value=_unit(per=1e9))  # NVML: nanoseconds


def _coder(function: str) -> NvmlQuery:
    call = NvmlCall(function, members=("utilization", "samplingPeriodUs"))
    return _query(call, member="utilization", value=_RATIO)


def _ecc_total(kind: int) -> NvmlQuery:
    """Ask for what the board has kept since it was made, else for what was since the last boot."""
    counters = (pynvml.NVML_AGGREGATE_ECC, pynvml.NVML_VOLATILE_ECC)
    return _query(*(NvmlCall("nvmlDeviceGetTotalEccErrors", (kind, c)) for c in counters))


def _rows(member: str) -> NvmlQuery:
    members = ("correctable", "uncorrectable", "pending", "failed")
    return _query(NvmlCall("nvmlDeviceGetRemappedRows", members=members), member=member)


def _pair(function: str) -> NvmlQuery:
    return _query(NvmlCall(function, members=("current", "pending")), member="current", value=_mode)


def _throughput(counter: int) -> NvmlQuery:
    return _query(NvmlCall("nvmlDeviceGetPcieThroughput", (counter,)), value=_unit(times=1e3))


_PROCESSES = NvmlQuery(
    tuple(
        (NvmlCall(newer), NvmlCall(older))
        for newer, older in zip(PROCESS_LISTS[::2], PROCESS_LISTS[1::2], strict=True)
    ),
    lambda lists: len({process for processes in lists for process in processes}),
)
UUID: Final = NvmlCall("nvmlDeviceGetUUID", once=True)
BUS: Final = NvmlCall("nvmlDeviceGetPciInfo_v3", once=True)
DRIVER: Final = NvmlCall("nvmlSystemGetDriverVersion")

MACHINE: dict[str, NvmlQuery] = {
    "driver_version": _query(DRIVER),
    "nvml_version": _query(NvmlCall("nvmlSystemGetNVMLVersion", once=True), value=_library_version),
    "cuda_version": _query(
        NvmlCall("nvmlSystemGetCudaDriverVersion_v2", once=True),
        NvmlCall("nvmlSystemGetCudaDriverVersion", once=True),
        value=_cuda_version,
    ),
}

GPU: dict[str, NvmlQuery] = {
    "name": _query(NvmlCall("nvmlDeviceGetName", once=True)),
    "uuid": _query(UUID),
    "pci_bus_id": _query(BUS, member="busId"),
    "vbios_version": _query(NvmlCall("nvmlDeviceGetVbiosVersion", once=True)),
    "compute_capability": _query(
        NvmlCall("nvmlDeviceGetCudaComputeCapability", members=("major", "minor"), once=True),
        value=_capability,
    ),
    "memory_total_bytes": _memory("total"),
    "memory_used_bytes": _memory("used"),
    "memory_free_bytes": _memory("free"),
    "memory_reserved_bytes": _memory("reserved"),
    "utilization_gpu_ratio": _query(
        NvmlCall("nvmlDeviceGetUtilizationRates"), member="gpu", value=_RATIO
    ),
    "utilization_memory_ratio": _query(
        NvmlCall("nvmlDeviceGetUtilizationRates"), member="memory", value=_RATIO
    ),
    "utilization_encoder_ratio": _coder("nvmlDeviceGetEncoderUtilization"),
    "utilization_decoder_ratio": _coder("nvmlDeviceGetDecoderUtilization"),
    "temperature_celsius": _query(
        NvmlCall("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
        NvmlCall("nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    ),
    "temperature_memory_celsius": _query(  # boards with HBM
        NvmlCall("nvmlDeviceGetFieldValues", (pynvml.NVML_FI_DEV_MEMORY_TEMP,))
    ),
    "temperature_slowdown_celsius": _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "temperature_shutdown_celsius": _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
    "power_watts": _query(NvmlCall("nvmlDeviceGetPowerUsage"), value=_MILLI),  # NVML: milliwatts
    "power_limit_watts": _query(NvmlCall("nvmlDeviceGetEnforcedPowerLimit"), value=_MILLI),
    "energy_joules_total": _query(NvmlCall("nvmlDeviceGetTotalEnergyConsumption"), value=_MILLI),
    "clock_graphics_hertz": _clock(pynvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_hertz": _clock(pynvml.NVML_CLOCK_SM),
    "clock_memory_hertz": _clock(pynvml.NVML_CLOCK_MEM),
    "clock_video_hertz": _clock(pynvml.NVML_CLOCK_VIDEO),
    "clock_graphics_max_hertz": _max_clock(pynvml.NVML_CLOCK_GRAPHICS),
    "clock_sm_max_hertz": _max_clock(pynvml.NVML_CLOCK_SM),
    "clock_memory_max_hertz": _max_clock(pynvml.NVML_CLOCK_MEM),
    "clock_video_max_hertz": _max_clock(pynvml.NVML_CLOCK_VIDEO),
    "pstate": _query(NvmlCall("nvmlDeviceGetPerformanceState")),
    "throttle_reasons": _query(
        NvmlCall("nvmlDeviceGetCurrentClocksEventReasons"),
        NvmlCall("nvmlDeviceGetCurrentClocksThrottleReasons"),  # before R535
        value=fields.throttle_words,
    ),
    "power_violation_seconds_total": _violation(pynvml.NVML_PERF_POLICY_POWER),
    "thermal_violation_seconds_total": _violation(pynvml.NVML_PERF_POLICY_THERMAL),
    "pcie_generation": _query(NvmlCall("nvmlDeviceGetCurrPcieLinkGeneration")),
    "pcie_generation_max": _query(NvmlCall("nvmlDeviceGetMaxPcieLinkGeneration", once=True)),
    "pcie_width": _query(NvmlCall("nvmlDeviceGetCurrPcieLinkWidth")),
    "pcie_width_max": _query(NvmlCall("nvmlDeviceGetMaxPcieLinkWidth", once=True)),
    "pcie_replays_total": _query(NvmlCall("nvmlDeviceGetPcieReplayCounter")),
    "fan_ratio": _query(NvmlCall("nvmlDeviceGetFanSpeed"), value=_RATIO),
    "ecc_mode": _pair("nvmlDeviceGetEccMode"),
    "ecc_corrected_total": _ecc_total(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected_total": _ecc_total(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "remapped_rows_correctable_total": _rows("correctable"),
    "remapped_rows_uncorrectable_total": _rows("uncorrectable"),
    "remapped_rows_pending": _rows("pending"),
    "remapped_rows_failed": _rows("failed"),
    "mig_mode": _pair("nvmlDeviceGetMigMode"),
    "processes": _PROCESSES,
}

THROUGHPUT: dict[str, NvmlQuery] = {
    "pcie_sent_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_TX_BYTES),
    "pcie_received_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_RX_BYTES),
}
"""Asked only where the settings say so: NVML counts for 20 ms at each."""

NO_THROUGHPUT = dict.fromkeys(THROUGHPUT, NvmlQuery((), lambda _: Absent.NOT_ASKED))
