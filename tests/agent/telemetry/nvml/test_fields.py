"""Every field that NVML has, through the real helper and a library with NVML's ABI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpud.agent.telemetry.fields import FIELDS, plausible
from tests.agent.telemetry.nvml import asking
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path

MOST_GPUS = 16  # that the stand-in can have
FIGURES: dict[str, tuple[int, str | None, float | str | None]] = {
    "memory_total_bytes": (85899345920, "memory_total_bytes", 85899345920.0),
    "memory_used_bytes": (4294967296, "memory_used_bytes", 4294967296.0),
    "memory_reserved_bytes": (1048576, "memory_reserved_bytes", 1048576.0),
    "memory_free_bytes": (77309411328, "memory_free_bytes", 77309411328.0),
    "temperature_c": (48, "temperature_celsius", 48.0),
    "temperature_memory_c": (61, "temperature_memory_celsius", 61.0),
    "temperature_slowdown_c": (87, "temperature_slowdown_celsius", 87.0),
    "temperature_shutdown_c": (92, "temperature_shutdown_celsius", 92.0),
    "power_mw": (31527, "power_watts", 31.527),
    "power_limit_mw": (310000, "power_limit_watts", 310.0),
    "energy_mj": (98765432101, "energy_joules_total", 98765432.101),
    "clock_graphics_mhz": (1410, "clock_graphics_hertz", 1410e6),
    "clock_sm_mhz": (1395, "clock_sm_hertz", 1395e6),
    "clock_memory_mhz": (1593, "clock_memory_hertz", 1593e6),
    "clock_video_mhz": (1275, "clock_video_hertz", 1275e6),
    "max_clock_graphics_mhz": (1980, "clock_graphics_max_hertz", 1980e6),
    "max_clock_sm_mhz": (1965, "clock_sm_max_hertz", 1965e6),
    "max_clock_memory_mhz": (2619, "clock_memory_max_hertz", 2619e6),
    "max_clock_video_mhz": (1545, "clock_video_max_hertz", 1545e6),
    "performance_state": (2, "pstate", 2.0),
    "clocks_event_reasons": (36, "throttle_reasons", "power_cap,thermal"),
    "power_violation_ns": (12345678900, "power_violation_seconds_total", 12.3456789),
    "thermal_violation_ns": (1500000, "thermal_violation_seconds_total", 0.0015),
    "utilization_gpu_percent": (57, "utilization_gpu_ratio", 0.57),
    "utilization_memory_percent": (29, "utilization_memory_ratio", 0.29),
    "encoder_utilization_percent": (7, "utilization_encoder_ratio", 0.07),
    "decoder_utilization_percent": (100, "utilization_decoder_ratio", 1.0),
    "pcie_generation": (4, "pcie_generation", 4.0),
    "pcie_generation_max": (5, "pcie_generation_max", 5.0),
    "pcie_width": (8, "pcie_width", 8.0),
    "pcie_width_max": (16, "pcie_width_max", 16.0),
    "pcie_replays": (3, "pcie_replays_total", 3.0),
    "pcie_tx_kbps": (1250, "pcie_sent_bytes_per_second", 1250000.0),
    "pcie_rx_kbps": (7500, "pcie_received_bytes_per_second", 7500000.0),
    "fan_speed_percent": (115, "fan_ratio", 1.15),
    "ecc_mode": (1, "ecc_mode", "enabled"),
    "ecc_corrected_volatile": (1, None, None),
    "ecc_uncorrected_volatile": (2, None, None),
    "ecc_corrected_aggregate": (17, "ecc_corrected_total", 17.0),
    "ecc_uncorrected_aggregate": (5, "ecc_uncorrected_total", 5.0),
    "remapped_rows_correctable": (4, "remapped_rows_correctable_total", 4.0),
    "remapped_rows_uncorrectable": (6, "remapped_rows_uncorrectable_total", 6.0),
    "remapped_rows_pending": (1, "remapped_rows_pending", 1.0),
    "remapped_rows_failed": (0, "remapped_rows_failed", 0.0),
    "mig_mode": (0, "mig_mode", "disabled"),
    "event_types": (8, None, None),
    "cc_major": (9, None, None),
    "cc_minor": (0, None, None),
}
"""A data-centre card, which withholds nothing: NVML's key and number, our field and value."""

FULL = "".join(f"device.0.{key} {raw}\n" for key, (raw, _, _) in FIGURES.items()) + (
    "device.0.compute_pids 101,102\ndevice.0.graphics_pids 102\ndevice.0.mps_pids 103\n"
)
OF_GPU = {field: value for _, field, value in FIGURES.values() if field} | {
    "name": "NVIDIA GeForce RTX 4070 (stand-in)",
    "uuid": "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000",
    "pci_bus_id": "00000000:01:00.0",
    "vbios_version": "95.04.31.00.7f",
    "compute_capability": "9.0",
    "processes": 3.0,
    "xids": "none",
    "xid_last": 0.0,
}
OF_MACHINE = {"driver_version": "572.16", "nvml_version": "595.45.03", "cuda_version": "12.8"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_libnvml(tmp_path_factory.mktemp("nvml"))


def test_every_field_arrives_in_base_units(library: Path) -> None:
    rewrite_script(library, f"{FULL}nvml_version 13.595.45.03\n")
    readings = asking.readings(library, "--pcie-throughput")
    assert asking.plain(asking.of(readings)) == OF_GPU
    assert asking.plain(asking.of(readings, None)) == OF_MACHINE
    assert set(OF_GPU) | set(OF_MACHINE) == set(FIELDS) - {"driver_folder", "exposed"}


WITHHELD = sorted(key for key in FIGURES if "ecc_" not in key and key != "cc_minor")
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
            values = asking.plain(asking.of(readings, gpu))
            absent = {name for name, value in values.items() if value == "unsupported"}
            assert absent, key
            arrived = values.keys() - absent - {"uuid", "pci_bus_id"}
            assert {n: values[n] for n in arrived} == {n: OF_GPU[n] for n in arrived}, key
            lost |= absent
    always = {"name", "uuid", "pci_bus_id", "vbios_version", "processes", "ecc_mode"}
    assert lost == OF_GPU.keys() - always - {"ecc_corrected_total", "ecc_uncorrected_total"}


def test_no_sentinel_gets_through_whatever_its_unit(library: Path) -> None:
    """DCGM's and NVML's blanks in every figure; one that C cuts to 32 bits is one there too."""
    sentinels = [2**64 - 1, 2**63 - 1, 2**63 - 14, 2**32 - 1, 2**31 - 1]
    script = [
        f"device.{gpu}.{key} {sentinel}\n"
        for gpu, sentinel in enumerate(sentinels)
        for key in FIGURES
    ]
    rewrite_script(library, f"devices {len(sentinels)}\n{''.join(script)}")
    readings = asking.readings(library, "--pcie-throughput")
    for gpu, sentinel in enumerate(sentinels):
        fields = asking.plain(asking.of(readings, gpu))
        assert set(fields) == set(OF_GPU)
        for field in ("power_watts", "energy_joules_total", "clock_sm_hertz", "memory_used_bytes"):
            if sentinel % 2**32 >= 2**31 - 1:
                assert fields[field] == "sentinel", (field, sentinel)
        numbers = {name: v for name, v in fields.items() if isinstance(v, float)}
        assert all(plausible(name, value) == value for name, value in numbers.items())


POWER, THRESHOLD = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperatureThreshold"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses_v3"
XIDS = "device.0.event_types 8\n"


@pytest.mark.parametrize(
    ("script", "field", "expected"),
    [
        (f"fail {POWER} 2\n", "power_watts", "failed"),
        (f"fail {POWER} 3\n", "power_watts", "unsupported"),
        (f"fail {POWER} 4\n", "power_watts", "not_permitted"),
        (f"fail {POWER} 13\n", "power_watts", "unsupported"),
        (f"fail {POWER} 16\n", "power_watts", "failed"),
        (f"fail {POWER} 26\n", "power_watts", "unsupported"),
        (f"fail {POWER} -7\n", "power_watts", "failed"),
        # a threshold that an older driver does not have
        (f"fail {THRESHOLD} 2\n", "temperature_slowdown_celsius", "unsupported"),
        (f"fail {GRAPHICS} 7\n", "processes", "failed"),
        (f"fail {GRAPHICS} 4\n", "processes", "not_permitted"),
        ("device.0.compute_pids none\ndevice.0.graphics_pids none\n", "processes", "unsupported"),
        ("device.0.ecc_corrected_volatile 9\n", "ecc_corrected_total", 9.0),
        # without events there are no Xids: the driver offers none, as Windows does, or refuses
        ("device.0.xid 79\n", "xids", "unsupported"),
        ("device.0.event_types none\n", "xid_last", "unsupported"),
        (f"{XIDS}fail nvmlEventSetCreate 999\n", "xids", "failed"),
        (f"{XIDS}fail nvmlDeviceRegisterEvents 4\n", "xids", "not_permitted"),
        (f"{XIDS}fail nvmlEventSetWait_v2 999\n", "xid_last", "failed"),
    ],
)
def test_each_refusal_is_the_reason_of_its_own_field(
    library: Path, script: str, field: str, expected: object
) -> None:
    rewrite_script(library, script)
    fields = asking.of(asking.readings(library))
    assert asking.plain(fields)[field] == expected
    assert expected == 9.0 or fields[field]["detail"]
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


def test_a_text_that_is_no_utf_8_costs_its_own_field(tmp_path: Path) -> None:
    broken = build_libnvml(tmp_path)
    script = b"device.0.vbios_version 95\xff\xfe\n"
    broken.with_name(broken.name + ".script").write_bytes(script)
    fields = asking.of(asking.readings(broken))
    assert fields["vbios_version"]["absent"] == "failed"
    assert "UnicodeDecodeError" in fields["vbios_version"]["detail"]
    assert fields["name"]["value"]


def test_xids_are_counted_from_the_events_of_the_driver_each_once(library: Path) -> None:
    rewrite_script(
        library,
        "devices 2\ndevice.0.event_types 8\ndevice.1.event_types 8\n"
        "device.0.xid 31 2\ndevice.1.xid 79\ndevice.0.xid 13\n",
    )
    for answer in asking.answers(library, times=2):
        fields = asking.plain(asking.of(answer["readings"], 0))
        assert (fields["xids"], fields["xid_last"]) == ("13:1,31:2", 13.0)
        assert asking.plain(asking.of(answer["readings"], 1))["xids"] == "79:1"


def test_xids_of_a_former_helper_are_added_by_uuid(library: Path) -> None:
    rewrite_script(library, f"{XIDS}device.0.xid 31 2\n")
    earlier = {OF_GPU["uuid"]: ["31:2,79:1", 79.0], "GPU-gone": ["13:1", 13.0]}
    fields = asking.values(library, f"--xids={json.dumps(earlier)}")
    assert (fields["xids"], fields["xid_last"]) == ("31:4,79:1", 31.0)
    rewrite_script(library, XIDS)
    assert asking.values(library, f"--xids={json.dumps(earlier)}")["xid_last"] == 79.0


def test_an_endless_or_senseless_stream_of_events_is_bounded(library: Path) -> None:
    codes = [0, 2**64 - 1, 2**32, 1001, *range(1, 41)]
    senseless = "".join(f"device.0.xid {code}\n" for code in codes)
    rewrite_script(library, f"{XIDS}{senseless}device.0.xid 40 {2**62}\n")
    for answer in asking.answers(library, times=2):
        fields = asking.plain(asking.of(answer["readings"]))
        counts = dict(part.split(":") for part in str(fields["xids"]).split(","))
        assert len(counts) == 16
        assert all(0 < int(code) <= 40 for code in counts)
        assert plausible("xids", fields["xids"]) == fields["xids"]
