"""Every field that NVML has, through the real helper and a library with NVML's ABI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.core.fields import FIELDS, plausible
from tests.agent.telemetry.nvml import asking
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path

MOST_GPUS = 16  # that the stand-in can have
NOT_NVMLS = {"driver_folder", "exposed"}
RAW = {
    "memory_total_bytes": 85_899_345_920,
    "memory_used_bytes": 4_294_967_296,
    "memory_reserved_bytes": 1_048_576,
    "memory_free_bytes": 77_309_411_328,
    "temperature_c": 48,
    "temperature_memory_c": 61,
    "temperature_slowdown_c": 87,
    "temperature_shutdown_c": 92,
    "power_mw": 31_527,
    "power_limit_mw": 310_000,
    "energy_mj": 98_765_432_101,
    "clock_graphics_mhz": 1_410,
    "clock_sm_mhz": 1_395,
    "clock_memory_mhz": 1_593,
    "clock_video_mhz": 1_275,
    "max_clock_graphics_mhz": 1_980,
    "max_clock_sm_mhz": 1_965,
    "max_clock_memory_mhz": 2_619,
    "max_clock_video_mhz": 1_545,
    "performance_state": 2,
    "clocks_event_reasons": 0x4 | 0x20,
    "power_violation_ns": 12_345_678_900,
    "thermal_violation_ns": 1_500_000,
    "utilization_gpu_percent": 57,
    "utilization_memory_percent": 29,
    "encoder_utilization_percent": 7,
    "decoder_utilization_percent": 100,
    "pcie_generation": 4,
    "pcie_generation_max": 5,
    "pcie_width": 8,
    "pcie_width_max": 16,
    "pcie_replays": 3,
    "pcie_tx_kbps": 1_250,
    "pcie_rx_kbps": 7_500,
    "fan_speed_percent": 115,
    "ecc_mode": 1,
    "ecc_corrected_volatile": 1,
    "ecc_uncorrected_volatile": 2,
    "ecc_corrected_aggregate": 17,
    "ecc_uncorrected_aggregate": 5,
    "remapped_rows_correctable": 4,
    "remapped_rows_uncorrectable": 6,
    "remapped_rows_pending": 1,
    "remapped_rows_failed": 0,
    "mig_mode": 0,
    "event_types": 8,
    "cc_major": 9,
    "cc_minor": 0,
}
"""A data-centre card, which withholds nothing, in NVML's units."""

FULL = "".join(f"device.0.{key} {value}\n" for key, value in RAW.items()) + (
    "device.0.compute_pids 101,102\ndevice.0.graphics_pids 102\ndevice.0.mps_pids 103\n"
)

OF_GPU = {
    "name": "NVIDIA GeForce RTX 4070 (stand-in)",
    "uuid": "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000",
    "pci_bus_id": "00000000:01:00.0",
    "vbios_version": "95.04.31.00.7f",
    "compute_capability": "9.0",
    "memory_total_bytes": 85_899_345_920.0,
    "memory_used_bytes": 4_294_967_296.0,
    "memory_free_bytes": 77_309_411_328.0,
    "memory_reserved_bytes": 1_048_576.0,
    "utilization_gpu_ratio": 0.57,
    "utilization_memory_ratio": 0.29,
    "utilization_encoder_ratio": 0.07,
    "utilization_decoder_ratio": 1.0,
    "temperature_celsius": 48.0,
    "temperature_memory_celsius": 61.0,
    "temperature_slowdown_celsius": 87.0,
    "temperature_shutdown_celsius": 92.0,
    "power_watts": 31.527,
    "power_limit_watts": 310.0,
    "energy_joules_total": 98_765_432.101,
    "clock_graphics_hertz": 1.41e9,
    "clock_sm_hertz": 1.395e9,
    "clock_memory_hertz": 1.593e9,
    "clock_video_hertz": 1.275e9,
    "clock_graphics_max_hertz": 1.98e9,
    "clock_sm_max_hertz": 1.965e9,
    "clock_memory_max_hertz": 2.619e9,
    "clock_video_max_hertz": 1.545e9,
    "pstate": 2.0,
    "throttle_reasons": "power_cap,thermal",
    "power_violation_seconds_total": 12.3456789,
    "thermal_violation_seconds_total": 0.0015,
    "pcie_generation": 4.0,
    "pcie_generation_max": 5.0,
    "pcie_width": 8.0,
    "pcie_width_max": 16.0,
    "pcie_replays_total": 3.0,
    "pcie_sent_bytes_per_second": 1_250_000.0,
    "pcie_received_bytes_per_second": 7_500_000.0,
    "fan_ratio": 1.15,
    "ecc_mode": "enabled",
    "ecc_corrected_total": 17.0,
    "ecc_uncorrected_total": 5.0,
    "remapped_rows_correctable_total": 4.0,
    "remapped_rows_uncorrectable_total": 6.0,
    "remapped_rows_pending": 1.0,
    "remapped_rows_failed": 0.0,
    "mig_mode": "disabled",
    "processes": 3.0,
    "xids": "none",
    "xid_last": 0.0,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_libnvml(tmp_path_factory.mktemp("nvml"))


def test_every_field_arrives_in_base_units(library: Path) -> None:
    rewrite_script(library, FULL)
    found = asking.readings(library, "--pcie-throughput")
    assert asking.plain(asking.of(found)) == OF_GPU
    assert asking.plain(asking.of(found, None)) == {
        "driver_version": "572.16",
        "nvml_version": "572.16",
        "cuda_version": "12.8",
    }
    assert set(OF_GPU) | {"driver_version", "nvml_version", "cuda_version"} == (
        set(FIELDS) - NOT_NVMLS
    )


POWER, THRESHOLD = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperatureThreshold"
REFUSED = {POWER: "power_watts", THRESHOLD: "temperature_slowdown_celsius"}

WITHHELD = sorted(RAW.keys() - {"cc_minor"} - {key for key in RAW if "ecc_" in key})
"""Every raw figure whose call the stand-in can refuse alone; errors have a second source."""


def test_each_field_withheld_alone_is_unsupported_and_the_rest_still_arrives(library: Path) -> None:
    """One GPU for each figure that can be withheld, as many as the library has at a time."""
    lost = set[str]()
    for start in range(0, len(WITHHELD), MOST_GPUS):
        keys = WITHHELD[start : start + MOST_GPUS]
        script = f"devices {len(keys)}\n"
        for gpu, key in enumerate(keys):
            script += FULL.replace("device.0.", f"device.{gpu}.") + f"device.{gpu}.{key} none\n"
        rewrite_script(library, script)
        readings = asking.readings(library, "--pcie-throughput")
        for gpu, key in enumerate(keys):
            fields = asking.of(readings, gpu)
            absent = {name for name, reading in fields.items() if reading["absent"]}
            assert absent, key
            assert {fields[name]["absent"] for name in absent} == {"unsupported"}, key
            arrived = fields.keys() - absent - {"uuid", "pci_bus_id"}
            values = asking.plain(fields)
            assert {n: values[n] for n in arrived} == {n: OF_GPU[n] for n in arrived}, key
            lost |= absent
    kept = {"name", "uuid", "pci_bus_id", "vbios_version", "processes", "ecc_mode"}
    assert lost == OF_GPU.keys() - kept - {"ecc_corrected_total", "ecc_uncorrected_total"}


def test_no_sentinel_gets_through_whatever_its_unit(library: Path) -> None:
    """DCGM's and NVML's blanks in every figure; one that C cuts to 32 bits is one there too."""
    sentinels = [2**64 - 1, 2**63 - 1, 2**63 - 14, 2**32 - 1, 2**31 - 1]
    rewrite_script(
        library,
        f"devices {len(sentinels)}\n"
        + "".join(
            f"device.{gpu}.{key} {sentinel}\n"
            for gpu, sentinel in enumerate(sentinels)
            for key in RAW
        ),
    )
    readings = asking.readings(library, "--pcie-throughput")
    for gpu, sentinel in enumerate(sentinels):
        fields = asking.plain(asking.of(readings, gpu))
        assert set(fields) == set(OF_GPU)
        for field in ("power_watts", "energy_joules_total", "clock_sm_hertz", "memory_used_bytes"):
            if sentinel % 2**32 >= 2**31 - 1:
                assert fields[field] == "sentinel", (field, sentinel)
        numbers = {name: v for name, v in fields.items() if isinstance(v, float)}
        assert all(plausible(name, value) == value for name, value in numbers.items())


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        (POWER, 2, "failed"),
        (POWER, 3, "unsupported"),
        (POWER, 4, "not_permitted"),
        (POWER, 13, "unsupported"),
        (POWER, 16, "failed"),
        (POWER, 26, "unsupported"),
        (POWER, 999, "failed"),
        (POWER, -7, "failed"),
        (THRESHOLD, 2, "unsupported"),  # a threshold that an older driver does not know
    ],
)
def test_each_refusal_is_a_reason(library: Path, function: str, code: int, reason: str) -> None:
    rewrite_script(library, f"fail {function} {code}\n")
    fields = asking.of(asking.readings(library))
    field = REFUSED[function]
    assert fields[field]["absent"] == reason
    assert fields[field]["detail"]
    assert fields["temperature_celsius"]["value"] == 41.0


OLDER: dict[str, dict[str, object]] = {
    "nvmlDeviceGetMemoryInfo_v2": {
        "memory_used_bytes": (1 << 30) + (200 << 20),  # what the driver keeps is among it
        "memory_reserved_bytes": "unsupported",
    },
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons": "idle"},
    "nvmlDeviceGetTemperature": {"temperature_celsius": 41.0},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"processes": 2.0},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_joules_total": "unsupported"},
    "nvmlDeviceGetSupportedEventTypes": {"xids": "unsupported"},
    "nvmlDeviceGetFieldValues": {"temperature_memory_celsius": "unsupported"},
}


@pytest.mark.parametrize("function", OLDER)
def test_a_driver_without_a_function_is_asked_by_the_one_it_has(
    tmp_path: Path, function: str
) -> None:
    older = build_libnvml(tmp_path, "device.0.compute_pids 5,6\n", without=[function])
    fields = asking.values(older)
    assert {name: fields[name] for name in OLDER[function]} == OLDER[function]
    assert fields["power_watts"] == 23.5


def test_an_older_struct_is_asked_for_where_the_driver_refuses_the_newer(library: Path) -> None:
    rewrite_script(library, "fail nvmlDeviceGetMemoryInfo_v2 25\n")
    assert asking.values(library)["memory_used_bytes"] == (1 << 30) + (200 << 20)


def test_errors_since_boot_stand_in_for_those_that_the_board_does_not_keep(library: Path) -> None:
    rewrite_script(
        library, "device.0.ecc_corrected_volatile 9\ndevice.0.ecc_uncorrected_volatile 0\n"
    )
    fields = asking.values(library)
    assert (fields["ecc_corrected_total"], fields["ecc_uncorrected_total"]) == (9.0, 0.0)


def test_the_librarys_version_is_told_without_that_of_its_api(library: Path) -> None:
    rewrite_script(library, "driver_version 595.71\nnvml_version 13.595.45.03\n")
    fields = asking.values(library, gpu=None)
    assert (fields["driver_version"], fields["nvml_version"]) == ("595.71", "595.45.03")


def test_a_text_that_is_no_utf_8_costs_its_own_field(tmp_path: Path) -> None:
    broken = build_libnvml(tmp_path)
    script = b"device.0.vbios_version 95\xff\xfe\n"
    broken.with_name(broken.name + ".script").write_bytes(script)
    fields = asking.of(asking.readings(broken))
    assert fields["vbios_version"]["absent"] == "failed"
    assert "UnicodeDecodeError" in fields["vbios_version"]["detail"]
    assert fields["name"]["value"]


def test_a_question_for_some_fields_costs_only_their_calls(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    quiet = build_libnvml(tmp_path, f"log {log}\n")
    asking.answers(quiet, fields=["uuid", "power_watts"])
    asked = [call for call in log.read_text().split() if call.startswith("nvmlDeviceGet")]
    assert "nvmlDeviceGetPowerUsage" in asked
    assert "nvmlDeviceGetTemperature" not in asked
    assert "nvmlDeviceGetComputeRunningProcesses_v3" not in asked
