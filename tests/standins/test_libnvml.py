"""The stand-in libnvidia-ml.so.1 answers NVIDIA's own Python package as its script says."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.standins.build import build_libnvml

# Read everything through pynvml; a refusal becomes its code.
PROGRAM = """
import ctypes, json, sys
ctypes.CDLL(sys.argv[1])
import pynvml as nv
def ask(function, *args):
    try:
        return function(*args)
    except nv.NVMLError as error:
        return {"error": error.value}
before = ask(nv.nvmlDeviceGetCount)
nv.nvmlInit()
handles = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]
gpu = handles[-1]
clocks = (nv.NVML_CLOCK_GRAPHICS, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_MEM, nv.NVML_CLOCK_VIDEO)
def struct(value):
    return value if isinstance(value, dict) else {k: getattr(value, k) for k, _ in value._fields_}
def field_value(number):
    told = nv.nvmlDeviceGetFieldValues(gpu, [number])[0]
    return [told.nvmlReturn, told.valueType, told.value.uiVal]
found = {
    "before": before,
    "count": len(handles),
    "driver": nv.nvmlSystemGetDriverVersion(),
    "nvml": nv.nvmlSystemGetNVMLVersion(),
    "cuda": [nv.nvmlSystemGetCudaDriverVersion(), nv.nvmlSystemGetCudaDriverVersion_v2()],
    "name": nv.nvmlDeviceGetName(gpu),
    "uuid": nv.nvmlDeviceGetUUID(gpu),
    "same": nv.nvmlDeviceGetName(nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(gpu))),
    "stranger": ask(nv.nvmlDeviceGetHandleByUUID, "GPU-none"),
    "vbios": nv.nvmlDeviceGetVbiosVersion(gpu),
    "bus": nv.nvmlDeviceGetPciInfo(gpu).busId,
    "bus_number": nv.nvmlDeviceGetPciInfo(gpu).bus,
    "memory": struct(ask(nv.nvmlDeviceGetMemoryInfo, gpu)),
    "memory_v2": struct(ask(nv.nvmlDeviceGetMemoryInfo, gpu, nv.nvmlMemory_v2)),
    "temperature": ask(nv.nvmlDeviceGetTemperature, gpu, nv.NVML_TEMPERATURE_GPU),
    "temperature_v": ask(nv.nvmlDeviceGetTemperatureV, gpu, nv.NVML_TEMPERATURE_GPU),
    "power": ask(nv.nvmlDeviceGetPowerUsage, gpu),
    "limit": ask(nv.nvmlDeviceGetEnforcedPowerLimit, gpu),
    "energy": ask(nv.nvmlDeviceGetTotalEnergyConsumption, gpu),
    "clocks": [ask(nv.nvmlDeviceGetClockInfo, gpu, clock) for clock in clocks],
    "max_clocks": [ask(nv.nvmlDeviceGetMaxClockInfo, gpu, clock) for clock in clocks],
    "state": ask(nv.nvmlDeviceGetPerformanceState, gpu),
    "utilization": struct(ask(nv.nvmlDeviceGetUtilizationRates, gpu)),
    "encoder": ask(nv.nvmlDeviceGetEncoderUtilization, gpu),
    "decoder": ask(nv.nvmlDeviceGetDecoderUtilization, gpu),
    "capability": ask(nv.nvmlDeviceGetCudaComputeCapability, gpu),
    "fan": ask(nv.nvmlDeviceGetFanSpeed, gpu),
    "throttle": ask(nv.nvmlDeviceGetCurrentClocksThrottleReasons, gpu),
    "events": ask(nv.nvmlDeviceGetCurrentClocksEventReasons, gpu),
    "thresholds": [ask(nv.nvmlDeviceGetTemperatureThreshold, gpu, kind) for kind in (0, 1, 2)],
    "memory_temperature": ask(field_value, nv.NVML_FI_DEV_MEMORY_TEMP),
    "violations": [struct(ask(nv.nvmlDeviceGetViolationStatus, gpu, policy)) for policy in (0, 1)],
    "pcie": [
        ask(nv.nvmlDeviceGetCurrPcieLinkGeneration, gpu),
        ask(nv.nvmlDeviceGetMaxPcieLinkGeneration, gpu),
        ask(nv.nvmlDeviceGetCurrPcieLinkWidth, gpu),
        ask(nv.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        ask(nv.nvmlDeviceGetPcieReplayCounter, gpu),
    ],
    "throughput": [ask(nv.nvmlDeviceGetPcieThroughput, gpu, counter) for counter in (0, 1, 2)],
    "ecc": ask(nv.nvmlDeviceGetEccMode, gpu),
    "errors": [
        ask(nv.nvmlDeviceGetTotalEccErrors, gpu, error, counter)
        for error in (0, 1)
        for counter in (0, 1)
    ],
    "rows": ask(nv.nvmlDeviceGetRemappedRows, gpu),
    "mig": ask(nv.nvmlDeviceGetMigMode, gpu),
    "processes": [
        [process.pid for process in found] if isinstance(found, list) else found
        for found in (
            ask(nv.nvmlDeviceGetComputeRunningProcesses_v2, gpu),
            ask(nv.nvmlDeviceGetGraphicsRunningProcesses_v3, gpu),
            ask(nv.nvmlDeviceGetMPSComputeRunningProcesses_v3, gpu),
        )
    ],
    "event_types": ask(nv.nvmlDeviceGetSupportedEventTypes, gpu),
    "driver_again": nv.nvmlSystemGetDriverVersion(),
}
events = nv.nvmlEventSetCreate()
xid = nv.nvmlEventTypeXidCriticalError
found["registered"] = ask(nv.nvmlDeviceRegisterEvents, gpu, xid, events)
def event():
    told = ask(nv.nvmlEventSetWait_v2, events, 0)
    return told if isinstance(told, dict) else [told.eventType, told.eventData]
found["told"] = [event() for _ in range(4)]
nv.nvmlEventSetFree(events)
nv.nvmlShutdown()
found["after"] = ask(nv.nvmlDeviceGetCount)
print(json.dumps(found))
"""


def run(library: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def read(library: Path) -> dict[str, Any]:
    result = run(library)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_every_field_arrives_through_pynvml(tmp_path: Path) -> None:
    total, used, reserved = 8 << 30, 1 << 30, 200 << 20
    free = total - used - reserved
    assert read(build_libnvml(tmp_path)) == {
        "before": {"error": 1},
        "count": 1,
        "driver": "572.16",
        "nvml": "12.572.16",
        "cuda": [12080, 12080],
        "name": "NVIDIA GeForce RTX 4070 (stand-in)",
        "uuid": "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000",
        "same": "NVIDIA GeForce RTX 4070 (stand-in)",
        "stranger": {"error": 6},
        "vbios": "95.04.31.00.7f",
        "bus": "00000000:01:00.0",
        "bus_number": 1,
        "memory": {"total": total, "free": free, "used": used + reserved},
        "memory_v2": {
            "version": 0x02000028,
            "total": total,
            "reserved": reserved,
            "free": free,
            "used": used,
        },
        "temperature": 41,
        "temperature_v": 41,
        "power": 23_500,
        "limit": 200_000,
        "energy": 1_234_567,
        "clocks": [210, 210, 405, 1185],
        "max_clocks": [3105, 3105, 10501, 2415],
        "state": 8,
        "utilization": {"gpu": 3, "memory": 1},
        "encoder": [0, 167_000],
        "decoder": [0, 167_000],
        "capability": [8, 9],
        "fan": 30,
        "throttle": 1,
        "events": 1,
        "thresholds": [95, 90, {"error": 2}],
        "memory_temperature": [3, 1, 0],
        "violations": [
            {"referenceTime": 1_700_000_000_000_000, "violationTime": 2_500_000_000},
            {"referenceTime": 1_700_000_000_000_000, "violationTime": 0},
        ],
        "pcie": [1, 4, 8, 16, 0],
        "throughput": [1500, 2500, {"error": 2}],
        "ecc": {"error": 3},
        "errors": [{"error": 3}] * 4,
        "rows": {"error": 3},
        "mig": {"error": 3},
        "processes": [[], [], {"error": 3}],
        "event_types": 0,
        "driver_again": "572.16",
        "registered": {"error": 3},
        "told": [{"error": 10}] * 4,
        "after": {"error": 1},
    }


def test_a_data_centre_card_gives_what_the_default_one_withholds(tmp_path: Path) -> None:
    found = read(
        build_libnvml(
            tmp_path,
            "device.0.temperature_memory_c 61\ndevice.0.ecc_mode 1\n"
            "device.0.ecc_corrected_volatile 1\ndevice.0.ecc_corrected_aggregate 2\n"
            "device.0.ecc_uncorrected_volatile 3\ndevice.0.ecc_uncorrected_aggregate 4\n"
            "device.0.remapped_rows_correctable 5\ndevice.0.remapped_rows_uncorrectable 6\n"
            "device.0.remapped_rows_pending 1\ndevice.0.mig_mode 1\n"
            "device.0.compute_pids 7,8\ndevice.0.graphics_pids 9\ndevice.0.mps_pids -\n"
            "device.0.event_types 8\ndevice.0.xid 31 2\ndevice.0.xid 79\n",
        )
    )
    assert found["memory_temperature"] == [0, 1, 61]
    assert found["ecc"] == [1, 0]
    assert found["errors"] == [1, 2, 3, 4]
    assert found["rows"] == [5, 6, 1, 0]
    assert found["mig"] == [1, 0]
    assert found["processes"] == [[7, 8], [9], []]
    assert found["registered"] is None
    assert found["told"] == [[8, 31], [8, 31], [8, 79], {"error": 10}]


def test_a_device_that_is_gone_after_some_calls_refuses_them_all(tmp_path: Path) -> None:
    found = read(build_libnvml(tmp_path, "device.0.fail * 15 12\n"))
    assert found["name"] == "NVIDIA GeForce RTX 4070 (stand-in)"
    assert found["power"] == found["fan"] == found["events"] == {"error": 15}
    assert found["driver"] == "572.16"


def test_functions_fail_or_are_missing_one_by_one(tmp_path: Path) -> None:
    found = read(
        build_libnvml(
            tmp_path,
            "fail nvmlDeviceGetFanSpeed 15\nfail nvmlDeviceGetClockInfo 999 2\n",
            without=["nvmlDeviceGetTemperatureV", "nvmlDeviceGetPowerUsage"],
        )
    )
    assert found["fan"] == {"error": 15}
    assert found["clocks"] == [210, 210, {"error": 999}, {"error": 999}]
    assert found["temperature_v"] == found["power"] == {"error": 13}
    assert found["temperature"] == 41


@pytest.mark.parametrize("script", ["device.0.power_w 3", "fail nvmlInit_v9 3", "devices 17"])
def test_a_mistake_in_a_script_ends_the_process(tmp_path: Path, script: str) -> None:
    result = run(build_libnvml(tmp_path, script))
    assert result.returncode == -signal.SIGABRT
    assert "stand-in libnvidia-ml.so.1: " in result.stderr
