"""Every field that NVML has, through the real helper and a library with NVML's ABI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpud.core.fields import FIELDS, SENTINELS, FieldKind, plausible
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


ONE_CALL = {
    "memory": (
        "memory_total_bytes",
        "memory_used_bytes",
        "memory_free_bytes",
        "memory_reserved_bytes",
    ),
    "utilization": ("utilization_gpu_ratio", "utilization_memory_ratio"),
    "rows": (
        "remapped_rows_correctable_total",
        "remapped_rows_uncorrectable_total",
        "remapped_rows_pending",
        "remapped_rows_failed",
    ),
    "events": ("xids", "xid_last"),
}
WITHHELD = {
    "memory_used_bytes": ONE_CALL["memory"],
    "temperature_c": ("temperature_celsius",),
    "temperature_memory_c": ("temperature_memory_celsius",),
    "temperature_slowdown_c": ("temperature_slowdown_celsius",),
    "temperature_shutdown_c": ("temperature_shutdown_celsius",),
    "power_mw": ("power_watts",),
    "power_limit_mw": ("power_limit_watts",),
    "energy_mj": ("energy_joules_total",),
    "clock_graphics_mhz": ("clock_graphics_hertz",),
    "clock_sm_mhz": ("clock_sm_hertz",),
    "clock_memory_mhz": ("clock_memory_hertz",),
    "clock_video_mhz": ("clock_video_hertz",),
    "max_clock_graphics_mhz": ("clock_graphics_max_hertz",),
    "max_clock_sm_mhz": ("clock_sm_max_hertz",),
    "max_clock_memory_mhz": ("clock_memory_max_hertz",),
    "max_clock_video_mhz": ("clock_video_max_hertz",),
    "performance_state": ("pstate",),
    "clocks_event_reasons": ("throttle_reasons",),
    "power_violation_ns": ("power_violation_seconds_total",),
    "thermal_violation_ns": ("thermal_violation_seconds_total",),
    "utilization_gpu_percent": ONE_CALL["utilization"],
    "encoder_utilization_percent": ("utilization_encoder_ratio",),
    "decoder_utilization_percent": ("utilization_decoder_ratio",),
    "pcie_generation": ("pcie_generation",),
    "pcie_generation_max": ("pcie_generation_max",),
    "pcie_width": ("pcie_width",),
    "pcie_width_max": ("pcie_width_max",),
    "pcie_replays": ("pcie_replays_total",),
    "pcie_tx_kbps": ("pcie_sent_bytes_per_second",),
    "pcie_rx_kbps": ("pcie_received_bytes_per_second",),
    "fan_speed_percent": ("fan_ratio",),
    "ecc_mode": ("ecc_mode",),
    "remapped_rows_correctable": ONE_CALL["rows"],
    "mig_mode": ("mig_mode",),
    "event_types": ONE_CALL["events"],
    "cc_major": ("compute_capability",),
}


def test_each_field_withheld_alone_is_unsupported_and_the_rest_still_arrives(library: Path) -> None:
    """One GPU for each field that can be withheld, as many as the library has at a time."""
    keys = list(WITHHELD)
    for start in range(0, len(keys), MOST_GPUS):
        script = f"devices {len(keys[start : start + MOST_GPUS])}\n"
        for gpu, key in enumerate(keys[start : start + MOST_GPUS]):
            script += FULL.replace("device.0.", f"device.{gpu}.") + f"device.{gpu}.{key} none\n"
        rewrite_script(library, script)
        found = asking.readings(library, "--pcie-throughput")
        for gpu, key in enumerate(keys[start : start + MOST_GPUS]):
            fields = asking.plain(asking.of(found, gpu))
            expected = {**OF_GPU, **dict.fromkeys(WITHHELD[key], "unsupported")}
            identity = {name: fields[name] for name in ("uuid", "pci_bus_id")}
            assert fields == expected | identity, key


def test_what_is_withheld_says_so_in_the_drivers_words(library: Path) -> None:
    rewrite_script(library, "device.0.fan_speed_percent none\n")
    fields = asking.of(asking.readings(library))
    assert fields["fan_ratio"]["detail"] == "Not Supported"


def test_what_the_settings_leave_out_is_no_fault_of_the_driver(library: Path) -> None:
    sent = asking.of(asking.readings(library))["pcie_sent_bytes_per_second"]
    assert sent["absent"] == "not_asked"
    assert "pcie_throughput" in sent["detail"]


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("nvmlDeviceGetPowerUsage", 3, "unsupported"),
        ("nvmlDeviceGetPowerUsage", 4, "not_permitted"),
        ("nvmlDeviceGetPowerUsage", 13, "unsupported"),
        ("nvmlDeviceGetPowerUsage", 16, "failed"),
        ("nvmlDeviceGetPowerUsage", 2, "failed"),
        ("nvmlDeviceGetPowerUsage", 26, "unsupported"),
        ("nvmlDeviceGetPowerUsage", 999, "failed"),
        ("nvmlDeviceGetPowerUsage", -7, "failed"),
        ("nvmlDeviceGetPowerUsage", 4711, "failed"),
    ],
)
def test_each_refusal_is_a_reason(library: Path, function: str, code: int, reason: str) -> None:
    rewrite_script(library, f"fail {function} {code}\n")
    fields = asking.values(library)
    assert fields["power_watts"] == reason
    assert fields["temperature_celsius"] == 41.0


def test_an_argument_that_an_older_driver_does_not_know_is_unsupported(library: Path) -> None:
    rewrite_script(library, "fail nvmlDeviceGetTemperatureThreshold 2\n")
    assert asking.values(library)["temperature_slowdown_celsius"] == "unsupported"


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "none"),
        (0x1, "idle"),
        (0x4 | 0x20, "power_cap,thermal"),
        (0x8 | 0x40 | 0x80, "hw_slowdown,hw_thermal,hw_power_brake"),
        (0x4 | 1 << 40, "power_cap,unknown"),
        (2**64 - 1, "sentinel"),
    ],
)
def test_what_holds_the_clocks_down_arrives_in_words(library: Path, bits: int, words: str) -> None:
    rewrite_script(library, f"device.0.clocks_event_reasons {bits}\n")
    assert asking.values(library)["throttle_reasons"] == words


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


@pytest.mark.parametrize("text", ["12", "[N/A]", "Err!"])
def test_a_version_that_is_none_is_no_version(library: Path, text: str) -> None:
    rewrite_script(library, f"nvml_version {text}\n")
    assert asking.values(library, gpu=None)["nvml_version"] == "sentinel"


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


# Whatever 64 bits can be

EDGES = [0, 1, 100, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 16, 2**63 - 14, 2**63 - 1]
EDGES += [2**63, 2**64 - 2, 2**64 - 1]
whatever = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from(EDGES),
    st.integers(0, 2**33),
    st.integers(0, 20_000),
)
NUMBERS = sorted(RAW)


@given(data=st.data())
@settings(max_examples=8, deadline=None, phases=(Phase.reuse, Phase.generate))
def test_whatever_a_number_is_no_sentinel_and_no_impossible_figure_gets_through(
    library: Path, data: st.DataObject
) -> None:
    """Each example is a process with 700 numbers, too many to shrink: the assertion names one."""
    rows = data.draw(
        st.lists(
            st.lists(whatever, min_size=len(NUMBERS), max_size=len(NUMBERS)),
            min_size=MOST_GPUS,
            max_size=MOST_GPUS,
        )
    )
    script = f"devices {len(rows)}\n" + "".join(
        f"device.{gpu}.{key} {value}\n"
        for gpu, row in enumerate(rows)
        for key, value in zip(NUMBERS, row, strict=True)
    )
    rewrite_script(library, script)
    found = asking.readings(library, "--pcie-throughput")
    for gpu, row in enumerate(rows):
        raw = dict(zip(NUMBERS, row, strict=True))
        fields = asking.of(found, gpu)
        assert set(fields) == set(OF_GPU)
        for field, reading in fields.items():
            holds_together(field, reading)
        milliwatts = raw["power_mw"] % 2**32
        expected = milliwatts / 1e3 if milliwatts <= 10_000_000 else "sentinel"
        assert asking.plain(fields)["power_watts"] == expected, milliwatts
        millijoules = raw["energy_mj"]
        if millijoules in SENTINELS:
            assert fields["energy_joules_total"]["absent"] == "sentinel"
        elif millijoules < 2**62:
            assert fields["energy_joules_total"]["value"] == millijoules / 1e3


def holds_together(field: str, reading: dict[str, Any]) -> None:
    value = reading["value"]
    if value is None:
        assert reading["absent"] in {"sentinel", "unsupported"}, field
        return
    known = FIELDS[field]
    assert plausible(field, value) == value, field
    if known.kind is not FieldKind.TEXT:
        assert known.low <= value <= known.high
        assert value not in SENTINELS
