"""Calls of NVML, what a refusal means, and how each field is made of answers, in base units.

Units: the suffix of the field's name, converted here and nowhere else. Source: nvml.h. ``pynvml``
has a wrapper for nearly every function, under its own name. Its errors are never compared or hashed
(they cannot be): only their ``value`` is read.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from gpud.agent.telemetry import fields
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """A function of nvml.h with the arguments that follow the device.

    ``members`` names what ``pynvml`` gives as a sequence; ``once``: the answer is of the hardware
    or the driver, and stays while the library is open.
    """

    function: str
    arguments: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    once: bool = False

    def answer(self, *handles: Any) -> Any:  # noqa: ANN401  # a number, text, a list, an opaque pointer
        """Return the answer as C gave it; of a struct its members.

        Of a process list the ids, each with its memory in bytes or None.

        Errors: whatever ``pynvml`` raises.
        """
        wrapper = _OWN.get(self.function) or getattr(pynvml, self.function, None)
        if wrapper is None:  # a ``pynvml`` older than the function
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        answer = wrapper(*handles, *self.arguments)
        if self.members:
            return dict(zip(self.members, answer, strict=True))
        if "RunningProcesses" in self.function:
            return [(process.pid, process.usedGpuMemory) for process in answer]
        if isinstance(answer, ctypes.Structure):
            return {name: getattr(answer, name) for name, *_ in answer._fields_}
        return answer


def _field_value(gpu: Any, number: int) -> Any:  # noqa: ANN401  # a ctypes structure and its union
    """Ask for one of NVML's numbered fields; each has a code and a type of its own."""
    answer = pynvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return getattr(answer.value, _MEMBERS[answer.valueType])


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union, in the order of nvmlValueType_t."""

_OWN: Final[Mapping[str, Callable[..., Any]]] = {
    "nvmlDeviceGetCount_v2": pynvml.nvmlDeviceGetCount,
    "nvmlDeviceGetHandleByIndex_v2": pynvml.nvmlDeviceGetHandleByIndex,
    "nvmlDeviceGetMemoryInfo_v2": pynvml.nvmlDeviceGetMemoryInfo,  # the argument makes the version
    "nvmlDeviceGetFieldValues": _field_value,
}
"""Functions whose wrapper has another name, or will not do."""

WHOLE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Codes that speak of the library, whatever was asked: nothing else will be answered either.

The others speak of one call or one GPU. Even of ``UNKNOWN`` only many in a row mean more.
"""
NOT_IN_THE_DRIVER: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Codes that stay the same as long as the driver does. WSL2 withholds several fields: normal."""
LOST: Final = pynvml.NVML_ERROR_GPU_IS_LOST


@dataclass(frozen=True, slots=True)
class NvmlRefusal:
    """Why a call has no answer, in its own words; ``code`` is None where NVML gave none."""

    absent: Absent
    words: str
    code: int | None = None


def guarded(call: NvmlCall, question: Callable[[], T]) -> T | NvmlRefusal:
    """Return the answer to a question; whatever it raises is the refusal of ``call``."""
    try:
        return question()
    except pynvml.NVMLError as raised:
        return _refusal(call, raised)
    except Exception as raised:  # noqa: BLE001  # a driver may give anything, no UTF-8 for instance
        return NvmlRefusal(Absent.FAILED, f"{type(raised).__name__}: {raised}")


def _refusal(call: NvmlCall, raised: pynvml.NVMLError) -> NvmlRefusal:
    code = int(raised.value)
    try:
        words = str(raised)  # NVML is asked for the words of a code that ``pynvml`` does not have
    except (TypeError, UnicodeDecodeError):
        words = f"error {code}"
    absent = Absent.FAILED
    if code in NOT_IN_THE_DRIVER:
        absent = Absent.UNSUPPORTED
    elif code == pynvml.NVML_ERROR_INVALID_ARGUMENT and call.arguments:
        absent = Absent.UNSUPPORTED  # an older driver, of which ours asks too much
    elif code == pynvml.NVML_ERROR_NO_PERMISSION:
        absent = Absent.NOT_PERMITTED
    return NvmlRefusal(absent, words, code)


@dataclass(frozen=True, slots=True)
class NvmlQuery:
    """How one field is asked for: of ``group`` the first call that the driver has answers.

    ``value`` makes the field of the answer.
    """

    group: tuple[NvmlCall, ...]
    value: Callable[[Any], object]


def calls(queries: Mapping[str, NvmlQuery]) -> Iterator[NvmlCall]:
    """Return every call that ``queries`` can make, each once, in order."""
    yield from dict.fromkeys(call for query in queries.values() for call in query.group)


def _same(answer: Any) -> Any:  # noqa: ANN401  # as C gave it
    return answer


def _query(*group: NvmlCall, member: str = "", value: Callable[[Any], object] = _same) -> NvmlQuery:
    """Return the query that converts the answer of the first call, or a member of it."""
    if member:
        return NvmlQuery(group, lambda answer: value(answer[member]))
    return NvmlQuery(group, value)


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


PROCESSES: Final = {
    letter: tuple(NvmlCall(f"nvmlDeviceGet{kind}RunningProcesses_{v}") for v in ("v3", "v2"))
    for letter, kind in (("C", "Compute"), ("G", "Graphics"), ("M", "MPSCompute"))
}
"""The lists of processes, each by its newer form or the older one, by nvidia-smi's letter."""
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
}

THROUGHPUT: dict[str, NvmlQuery] = {
    "pcie_sent_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_TX_BYTES),
    "pcie_received_bytes_per_second": _throughput(pynvml.NVML_PCIE_UTIL_RX_BYTES),
}
"""Asked only where the settings say so: NVML counts for 20 ms at each."""

NO_THROUGHPUT = dict.fromkeys(THROUGHPUT, NvmlQuery((), _same))
