"""The NVML helper: every field that NVML has, its memory, its end, and the recording."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

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


# --- memory and end ---


def calls(library: Path, log: Path, script: str, times: int) -> Counter[str]:
    rewrite_script(library, f"log {log}\n{script}")
    assert len(asking.answers(library, times=times)) == times
    return Counter(log.read_text().split())


def test_a_call_the_driver_does_not_have_is_asked_once_and_what_may_change_each_time(
    library: Path, tmp_path: Path
) -> None:
    script = "fail nvmlDeviceGetPowerUsage 4\nfail nvmlDeviceGetFanSpeed 999\n"
    counted = calls(library, tmp_path / "log", script, times=4)
    assert counted["nvmlDeviceGetEccMode"] == 1, "not supported"
    assert counted["nvmlDeviceGetName"] == 1, "of the hardware"
    assert counted["nvmlDeviceGetPowerUsage"] == 4, "not permitted now"
    assert counted["nvmlDeviceGetFanSpeed"] == 4, "failed now"
    assert counted["nvmlDeviceGetMemoryInfo_v2"] == 4, "four fields, one call"
    assert counted["nvmlDeviceGetPcieThroughput"] == 0, "20 ms, and the settings do not ask"


def test_another_driver_version_ends_the_session(library: Path) -> None:
    rewrite_script(library, "next_driver_version 4 576.02\n")
    *before, last = asking.answers(library, times=9)
    versions = [asking.of(a["readings"], None)["driver_version"]["value"] for a in before]
    assert set(versions) == {"572.16"}
    assert (last["reason"], last["last"]) == ("library_replaced", True)


@pytest.mark.parametrize("options", [(), ("--record",)])
def test_a_helper_that_hangs_ends_by_itself(library: Path, options: tuple[str, ...]) -> None:
    rewrite_script(library, "hang nvmlDeviceGetPowerUsage\n")
    ended = asking.run("--budget-s=0.5", *options, str(library), questions="{}\n")
    assert (ended.returncode, ended.stdout) == (-signal.SIGALRM, "")


def test_a_library_that_prints_does_not_break_the_protocol(library: Path) -> None:
    rewrite_script(library, "log /proc/self/fd/1\n")
    assert asking.values(library)["power_watts"] == 23.5


def test_gpus_are_numbered_in_the_order_of_their_slots(library: Path) -> None:
    rewrite_script(
        library,
        "devices 2\ndevice.0.pci_bus_id 00000000:2B:00.0\ndevice.1.pci_bus_id 00000000:01:00.0\n",
    )
    readings = asking.readings(library)
    slots = [asking.of(readings, gpu)["pci_bus_id"]["value"] for gpu in (0, 1)]
    assert slots == ["00000000:01:00.0", "00000000:2B:00.0"]


def test_a_machine_without_a_gpu_still_has_a_driver(library: Path) -> None:
    rewrite_script(library, "devices 0\n")
    readings = asking.readings(library)
    assert {reading["gpu"] for reading in readings} == {None}
    assert asking.of(readings, None)["driver_version"]["value"] == "572.16"


# One GPU of several


def test_a_lost_gpu_costs_the_others_nothing_and_keeps_its_name(
    library: Path, tmp_path: Path
) -> None:
    rewrite_script(library, f"log {tmp_path / 'log'}\ndevices 3\ndevice.1.fail * 15 60\n")
    answers = asking.answers(library, times=4)
    for answer in answers:
        for gpu in (0, 2):
            assert asking.of(answer["readings"], gpu)["power_watts"]["value"] == 23.5
    before, after = (asking.of(answers[at]["readings"], 1) for at in (0, -1))
    assert before["power_watts"]["value"] == 23.5
    for field in ("name", "uuid", "pci_bus_id"):
        assert after[field]["value"] == before[field]["value"]
    for field in ("power_watts", "temperature_celsius", "memory_used_bytes"):
        assert (after[field]["absent"], after[field]["detail"]) == ("failed", "GPU is lost")
    counted = Counter((tmp_path / "log").read_text().split())
    assert counted["nvmlDeviceGetPowerUsage"] < 12, "a call to a GPU that is gone may take long"


def test_a_gpu_that_fails_in_everything_costs_the_other_nothing(library: Path) -> None:
    rewrite_script(library, "devices 2\ndevice.0.fail * 999 1\n")
    for answer in asking.answers(library, times=3):
        assert asking.of(answer["readings"], 1)["power_watts"]["value"] == 23.5
        assert asking.of(answer["readings"], 0)["power_watts"]["absent"] == "failed"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("devices 2\ndevice.0.fail * 15 9\ndevice.1.fail * 15 9\n", "gpu_is_lost"),
        ("devices 2\ndevice.0.fail * 999 1\ndevice.1.fail * 999 1\n", "failed"),
        ("devices 2\ndevice.0.fail * 15\ndevice.1.fail * 15\n", "gpu_is_lost"),
        ("device.0.fail * 4\n", "not_permitted"),
        ("device.0.fail nvmlDeviceGetFanSpeed 1\n", "failed"),
        ("devices 2\ndevice.0.fail nvmlDeviceGetFanSpeed 9\n", "driver_not_loaded"),
        ("devices 2\ndevice.0.fail nvmlDeviceGetFanSpeed 18\n", "driver_mismatch"),
        ("fail nvmlDeviceGetCount_v2 17\n", "blocked_by_the_operating_system"),
    ],
)
def test_where_no_gpu_gives_anything_there_are_no_readings_and_the_helper_ends(
    library: Path, script: str, reason: str
) -> None:
    rewrite_script(library, script)
    [answer] = asking.answers(library, times=3)
    assert (answer["reason"], "readings" in answer) == (reason, False)


# The recording


def recorded_call(
    document: dict[str, Any], function: str, *arguments: int, gpu: int | None = 0
) -> tuple[Any, Any]:
    [entry] = [
        entry
        for entry in document["calls"]
        if (entry["call"], entry["gpu"], entry["arguments"]) == (function, gpu, list(arguments))
    ]
    return entry["code"], entry["value"]


def test_a_recording_has_every_call_of_a_collection_once_as_c_gave_it(
    library: Path, tmp_path: Path
) -> None:
    rewrite_script(
        library,
        f"log {tmp_path / 'log'}\ndevices 2\ndevice.0.energy_mj {2**64 - 1}\n"
        "device.1.fan_speed_percent none\ndevice.1.fail nvmlDeviceGetPowerUsage 999\n"
        "device.0.compute_pids 4711,4712\n",
    )
    document = asking.recorded(library)
    assert (document["library"], document["error"], document["missing"]) == (str(library), None, [])
    first = {"call": "nvmlInitWithFlags", "gpu": None, "arguments": [0], "code": 0, "value": None}
    assert document["calls"][0] == first
    for expected, function, arguments, gpu in (
        ((0, "12.572.16"), "nvmlSystemGetNVMLVersion", (), None),
        ((0, 2), "nvmlDeviceGetCount_v2", (), None),
        ((0, None), "nvmlDeviceGetHandleByIndex_v2", (1,), None),
        ((0, 2**64 - 1), "nvmlDeviceGetTotalEnergyConsumption", (), 0),
        ((3, None), "nvmlDeviceGetFanSpeed", (), 1),
        ((999, None), "nvmlDeviceGetPowerUsage", (), 1),
        ((0, {"count": 2}), "nvmlDeviceGetComputeRunningProcesses_v3", (), 0),
    ):
        assert recorded_call(document, function, *arguments, gpu=gpu) == expected
    assert recorded_call(document, "nvmlDeviceGetMemoryInfo")[1]["total"] == 8 << 30
    assert "4711" not in str(document), "whose processes they are is not recorded"
    keys = [(e["call"], e["gpu"], tuple(e["arguments"])) for e in document["calls"]]
    assert len(keys) == len(set(keys))
    (tmp_path / "log").unlink()
    asking.answers(library, "--pcie-throughput")
    called = set((tmp_path / "log").read_text().split()) - {"nvmlErrorString"}
    assert called <= {entry["call"] for entry in document["calls"]}


def test_without_a_start_of_nvml_nothing_else_is_recorded(library: Path) -> None:
    rewrite_script(library, "fail nvmlInitWithFlags 9\n")
    [only] = asking.recorded(library)["calls"]
    assert (only["call"], only["code"]) == ("nvmlInitWithFlags", 9)
    document = asking.recorded("/nonexistent/libnvidia-ml.so.1")
    assert (document["library"], document["calls"], document["missing"]) == (None, [], [])
    assert "cannot open shared object" in document["error"]
