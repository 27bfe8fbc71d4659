"""What the helper remembers, when it begins anew, and what one GPU of two can cost the other."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gpud.agent.telemetry.nvml import queries, xids
from gpud.agent.telemetry.nvml.__main__ import TROUBLED_LIFE_S
from gpud.core.settings import parse
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


def test_a_call_the_driver_does_not_know_is_asked_once_and_what_may_change_each_time(
    library: Path, tmp_path: Path
) -> None:
    script = "fail nvmlDeviceGetPowerUsage 4\nfail nvmlDeviceGetFanSpeed 999\n"
    counted = calls(library, tmp_path / "log", script, times=4)
    assert counted["nvmlDeviceGetEccMode"] == 1, "not supported"
    assert counted["nvmlDeviceGetName"] == 1, "of the hardware"
    assert counted["nvmlDeviceGetPowerUsage"] == 4, "not permitted now"
    assert counted["nvmlDeviceGetFanSpeed"] == 4, "failed now"
    assert counted["nvmlDeviceGetMemoryInfo_v2"] == 4, "four fields, one call"
    assert counted["nvmlDeviceGetPcieThroughput"] == 0, "20 ms, and nobody wished it"


def test_another_driver_version_is_the_end_of_all_that_was_remembered(library: Path) -> None:
    rewrite_script(library, "next_driver_version 4 576.02\n")
    told = asking.answers(library, times=9)
    versions = [
        asking.of(answer["readings"], None)["driver_version"]["value"] for answer in told[:-1]
    ]
    assert set(versions) == {"572.16"}
    assert (told[-1]["reason"], told[-1]["last"]) == ("library_replaced", True)


@pytest.mark.parametrize("options", [(), ("--record",)])
def test_a_helper_that_hangs_ends_by_itself_when_nobody_ends_it(
    library: Path, options: tuple[str, ...]
) -> None:
    rewrite_script(library, "hang nvmlDeviceGetPowerUsage\n")
    ended = asking.run("--budget-s=0.5", *options, str(library), questions="{}\n")
    assert (ended.returncode, ended.stdout) == (-signal.SIGALRM, "")


def test_the_time_between_two_questions_is_nobodys_hang(library: Path) -> None:
    rewrite_script(library, "")
    command = [*asking.HELPER, "--budget-s=3", str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        assert helper.stdin
        assert helper.stdout
        helper.stdin.write(b"{}\n")
        helper.stdin.flush()
        assert helper.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            helper.wait(timeout=3.5)
        helper.stdin.close()
        assert helper.wait(timeout=asking.FOREVER_S) == 0


LOST = "devices 3\ndevice.1.fail * 15 {after}\n"


def test_a_gpu_that_is_lost_costs_the_others_nothing_and_keeps_its_name(library: Path) -> None:
    rewrite_script(library, "devices 3\n")
    calls_of_a_gpu = 60  # more than a collection asks of one
    rewrite_script(library, LOST.format(after=calls_of_a_gpu))
    told = asking.answers(library, times=4)
    for answer in told:
        for gpu in (0, 2):
            assert asking.of(answer["readings"], gpu)["power_watts"]["value"] == 23.5
    before, after = (asking.of(told[at]["readings"], 1) for at in (0, -1))
    assert before["power_watts"]["value"] == 23.5
    identity = ("name", "uuid", "pci_bus_id")
    assert [after[field]["value"] for field in identity] == [
        before[field]["value"] for field in identity
    ]
    assert set(after) == set(before)
    for field in set(after) - {*identity, "xids", "xid_last"}:
        assert after[field]["absent"] == "failed", field
        assert after[field]["detail"] == "GPU is lost"


def test_a_lost_gpu_is_asked_once_a_collection(library: Path, tmp_path: Path) -> None:
    script = "devices 2\ndevice.1.fail nvmlDeviceGetUtilizationRates 15\n"
    counted = calls(library, tmp_path / "log", script, times=3)
    assert counted["nvmlDeviceGetUtilizationRates"] == 6
    assert counted["nvmlDeviceGetPowerUsage"] == 3, "a call to a GPU that is gone may take long"


def test_a_gpu_that_is_not_even_found_costs_the_others_nothing(library: Path) -> None:
    rewrite_script(library, LOST.format(after=0))
    found = asking.readings(library)
    assert {reading["gpu"] for reading in found} == {None, 0, 1}
    uuids = [asking.of(found, gpu)["uuid"]["value"][-1] for gpu in (0, 1)]
    assert uuids == ["0", "2"]


def test_a_missing_gpu_is_looked_for_within_a_minute() -> None:
    assert 1 <= TROUBLED_LIFE_S + parse(None, {}).schedule.telemetry_interval_s < 60


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


def test_a_gpu_that_fails_in_everything_costs_the_other_nothing(library: Path) -> None:
    rewrite_script(library, "devices 2\ndevice.0.fail * 999 1\n")
    for answer in asking.answers(library, times=3):
        found = answer["readings"]
        assert asking.of(found, 1)["power_watts"]["value"] == 23.5
        absent = {r["field"]: r["absent"] for r in found if r["gpu"] == 0}
        assert {absent.pop(field) for field in queries.THROUGHPUT} == {"not_asked"}
        assert {why for field, why in absent.items() if field not in xids.FIELDS} <= {
            "failed",
            "unsupported",
        }


def test_a_machine_without_a_gpu_still_has_a_driver(library: Path) -> None:
    rewrite_script(library, "devices 0\n")
    found = asking.readings(library)
    assert {reading["gpu"] for reading in found} == {None}
    assert asking.of(found, None)["driver_version"]["value"] == "572.16"


def test_a_count_that_is_out_of_this_world_is_not_followed_to_its_end(library: Path) -> None:
    rewrite_script(library, f"claimed_devices {2**32 - 1}\n")
    found = asking.readings(library)
    assert {reading["gpu"] for reading in found} == {None, 0}
    assert len(asking.recorded(library)["calls"]) < 300


def test_gpus_are_counted_in_the_order_of_their_slots(library: Path) -> None:
    rewrite_script(
        library,
        "devices 2\ndevice.0.pci_bus_id 00000000:2B:00.0\ndevice.1.pci_bus_id 00000000:01:00.0\n",
    )
    found = asking.readings(library)
    slots = [asking.of(found, gpu)["pci_bus_id"]["value"] for gpu in (0, 1)]
    assert slots == ["00000000:01:00.0", "00000000:2B:00.0"]


def test_a_library_that_prints_does_not_break_the_protocol(library: Path) -> None:
    rewrite_script(library, "log /proc/self/fd/1\n")
    [answer] = asking.answers(library)
    assert asking.of(answer["readings"])["power_watts"]["value"] == 23.5
