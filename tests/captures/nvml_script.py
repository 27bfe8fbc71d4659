"""Recorded calls of NVML -> the script that makes the stand-in library give the same answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.captures.recording import RecordedCall, RecordedNvml

NOT_SUPPORTED = 3
WITHHELD = "none"
INIT, COUNT = "nvmlInitWithFlags", "nvmlDeviceGetCount_v2"
HANDLE = "nvmlDeviceGetHandleByIndex_v2"
FIRST_PID = 9_000_001

Keys = dict[str, str]
"""Script key, less ``device.I.``, -> its value."""


class CannotReplay(Exception):  # noqa: N818  # reads as the fact it states
    """The stand-in has no way to give this answer; the text says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call's value is put into keys, and which keys withhold it."""

    keys: tuple[str, ...]
    split: Callable[[Any], Keys]


def one(key: str) -> Answer:
    return Answer((key,), lambda value: {key: str(value)})


def members(**keys: str) -> Answer:
    """A struct of which each member is a key."""
    return Answer(
        tuple(keys.values()), lambda value: {key: str(value[name]) for name, key in keys.items()}
    )


def _slot(value: Any) -> Keys:
    domain, bus, device = value["domain"], value["bus"], value["device"]
    if value["busIdLegacy"] != f"{domain & 0xFFFF:04X}:{bus:02X}:{device:02X}.0":
        raise CannotReplay(f"a bus id that is two: {value}")
    return {
        "pci_bus_id": value["busId"],
        "pci_device_id": str(value["pciDeviceId"]),
        "pci_subsystem_id": str(value["pciSubSystemId"]),
    }


def _memory(value: Any) -> Keys:
    return {"memory_total_bytes": str(value["total"]), "memory_free_bytes": str(value["free"])}


def _processes(key: str) -> Answer:
    first = {"compute_pids": 0, "graphics_pids": 20, "mps_pids": 40}[key] + FIRST_PID

    def split(value: Any) -> Keys:
        return {key: ",".join(str(first + n) for n in range(value["count"])) or "-"}

    return Answer((key,), split)


def _coder(kind: str) -> Answer:
    return members(utilization=f"{kind}_utilization_percent", samplingPeriodUs=f"{kind}_period_us")


def _violation(key: str) -> Answer:
    return members(violationTime=key, referenceTime="violation_reference_us")


ERRORS, COUNTERS = ("corrected", "uncorrected"), ("volatile", "aggregate")
MEMORY_V2 = members(
    total="memory_total_bytes",
    reserved="memory_reserved_bytes",
    free="memory_free_bytes",
    used="memory_used_bytes",
)

DEVICE: Mapping[tuple[str, tuple[int, ...]], Answer] = {
    ("nvmlDeviceGetName", ()): one("name"),
    ("nvmlDeviceGetUUID", ()): one("uuid"),
    ("nvmlDeviceGetPciInfo_v3", ()): Answer(("pci_bus_id",), _slot),
    ("nvmlDeviceGetVbiosVersion", ()): one("vbios_version"),
    ("nvmlDeviceGetCudaComputeCapability", ()): members(major="cc_major", minor="cc_minor"),
    ("nvmlDeviceGetMemoryInfo_v2", (33554472,)): MEMORY_V2,
    ("nvmlDeviceGetMemoryInfo", ()): Answer(("memory_total_bytes",), _memory),
    ("nvmlDeviceGetUtilizationRates", ()): members(
        gpu="utilization_gpu_percent", memory="utilization_memory_percent"
    ),
    ("nvmlDeviceGetEncoderUtilization", ()): _coder("encoder"),
    ("nvmlDeviceGetDecoderUtilization", ()): _coder("decoder"),
    ("nvmlDeviceGetTemperature", (0,)): one("temperature_c"),
    ("nvmlDeviceGetTemperatureV", (0,)): one("temperature_c"),
    ("nvmlDeviceGetFieldValues", (82,)): one("temperature_memory_c"),
    ("nvmlDeviceGetTemperatureThreshold", (0,)): one("temperature_shutdown_c"),
    ("nvmlDeviceGetTemperatureThreshold", (1,)): one("temperature_slowdown_c"),
    ("nvmlDeviceGetPowerUsage", ()): one("power_mw"),
    ("nvmlDeviceGetEnforcedPowerLimit", ()): one("power_limit_mw"),
    ("nvmlDeviceGetTotalEnergyConsumption", ()): one("energy_mj"),
    ("nvmlDeviceGetPerformanceState", ()): one("performance_state"),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()): one("clocks_event_reasons"),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", ()): one("clocks_event_reasons"),
    ("nvmlDeviceGetViolationStatus", (0,)): _violation("power_violation_ns"),
    ("nvmlDeviceGetViolationStatus", (1,)): _violation("thermal_violation_ns"),
    ("nvmlDeviceGetCurrPcieLinkGeneration", ()): one("pcie_generation"),
    ("nvmlDeviceGetMaxPcieLinkGeneration", ()): one("pcie_generation_max"),
    ("nvmlDeviceGetCurrPcieLinkWidth", ()): one("pcie_width"),
    ("nvmlDeviceGetMaxPcieLinkWidth", ()): one("pcie_width_max"),
    ("nvmlDeviceGetPcieReplayCounter", ()): one("pcie_replays"),
    ("nvmlDeviceGetPcieThroughput", (0,)): one("pcie_tx_kbps"),
    ("nvmlDeviceGetPcieThroughput", (1,)): one("pcie_rx_kbps"),
    ("nvmlDeviceGetFanSpeed", ()): one("fan_speed_percent"),
    ("nvmlDeviceGetEccMode", ()): members(current="ecc_mode", pending="ecc_mode_pending"),
    ("nvmlDeviceGetMigMode", ()): members(current="mig_mode", pending="mig_mode_pending"),
    ("nvmlDeviceGetRemappedRows", ()): members(
        correctable="remapped_rows_correctable",
        uncorrectable="remapped_rows_uncorrectable",
        pending="remapped_rows_pending",
        failed="remapped_rows_failed",
    ),
    ("nvmlDeviceGetSupportedEventTypes", ()): one("event_types"),
    **{
        (f"nvmlDeviceGet{function}", (number,)): one(f"{key}_{clock}_mhz")
        for function, key in (("ClockInfo", "clock"), ("MaxClockInfo", "max_clock"))
        for number, clock in enumerate(("graphics", "sm", "memory", "video"))
    },
    **{
        ("nvmlDeviceGetTotalEccErrors", (e, c)): one(f"ecc_{error}_{counter}")
        for e, error in enumerate(ERRORS)
        for c, counter in enumerate(COUNTERS)
    },
    **{
        (f"nvmlDeviceGet{kind}RunningProcesses_{version}", ()): _processes(key)
        for kind, key in (
            ("Compute", "compute_pids"),
            ("Graphics", "graphics_pids"),
            ("MPSCompute", "mps_pids"),
        )
        for version in ("v2", "v3")
    },
}
"""How each call of a device is answered. The keys are those of ``nvml_settings.c``."""

LIBRARY: Mapping[str, str] = {
    "nvmlSystemGetDriverVersion": "driver_version",
    "nvmlSystemGetNVMLVersion": "nvml_version",
    "nvmlSystemGetCudaDriverVersion": "cuda_version",
    "nvmlSystemGetCudaDriverVersion_v2": "cuda_version",
    COUNT: "devices",
}


def script(nvml: RecordedNvml) -> str:
    """Give the script. Errors: ``CannotReplay`` for a call or a value that the stand-in cannot."""
    of_library: Keys = {}
    of_device: dict[int, list[RecordedCall]] = defaultdict(list)
    lines = []
    for call in nvml.calls:
        if call.code is None or call.error is not None:
            raise CannotReplay(f"{call.call}, refused before it reached the library: {call.error}")
        if call.call == HANDLE:
            of_device[call.arguments[0]].append(call)
        elif call.gpu is not None:
            of_device[call.gpu].append(call)
        elif call.code:
            lines.append(f"fail {call.call} {call.code}")
        elif call.call in LIBRARY:
            _set(of_library, {LIBRARY[call.call]: str(call.value)}, call)
        elif call.call != INIT:
            raise CannotReplay(f"the stand-in does not know {call.call}")
    lines += [f"{key} {value}" for key, value in of_library.items()]
    for gpu, calls in of_device.items():
        lines += [f"device.{gpu}.{line}" for line in _device(calls)]
    return "\n".join([*lines, ""])


def _device(calls: Sequence[RecordedCall]) -> list[str]:
    """Give the lines of one device, less its prefix: what it answers, withholds and refuses."""
    keys: Keys = {}
    refused: list[RecordedCall] = []
    for call in calls:
        if call.call == HANDLE and not call.code:
            continue
        if call.code:
            refused.append(call)
        else:
            _set(keys, _answer(call).split(call.value), call)
    _count_reserved(calls, keys)
    fails: dict[str, int] = {}
    answered = {call.call for call in calls if not call.code}
    for call in refused:
        ours = _answer(call).keys if call.call != HANDLE else ()
        if call.code == NOT_SUPPORTED and ours and keys.get(ours[0], WITHHELD) == WITHHELD:
            keys[ours[0]] = WITHHELD
        elif call.call in answered or fails.setdefault(call.call, call.code or 0) != call.code:
            raise CannotReplay(f"{call.call} with {call.arguments} fails, with others it does not")
    lines = [f"{key} {value}" for key, value in keys.items()]
    return lines + [f"fail {function} {code}" for function, code in fails.items()]


def _count_reserved(calls: Sequence[RecordedCall], keys: Keys) -> None:
    """The older form of the memory counts as used what the driver keeps for itself."""
    for call in calls:
        if call.call == "nvmlDeviceGetMemoryInfo" and not call.code:
            used = int(keys.setdefault("memory_used_bytes", str(call.value["used"])))
            reserved = int(keys.setdefault("memory_reserved_bytes", "0"))
            if used + reserved != call.value["used"]:
                raise CannotReplay(f"{call.value['used']} bytes used, and {used} + {reserved}")


def _answer(call: RecordedCall) -> Answer:
    found = DEVICE.get((call.call, call.arguments))
    if found is None:
        raise CannotReplay(f"the stand-in does not know {call.call} with {call.arguments}")
    return found


def _set(keys: Keys, new: Keys, call: RecordedCall) -> None:
    for key, value in new.items():
        if keys.setdefault(key, value) != value:
            raise CannotReplay(f"{call.call} says {key} {value}, another call {keys[key]}")
