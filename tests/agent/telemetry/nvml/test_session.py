"""The NVML helper's memory, its end, a GPU that fails beside another, and the recording."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.telemetry.nvml import asking
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_libnvml(tmp_path_factory.mktemp("nvml"))


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
