"""What a snapshot says of driver and machine, and what of it is nobody's word."""

from __future__ import annotations

import pytest

from gpud.agent.regression.changes import Fact
from gpud.agent.state.changes import CUDA_LISTS, facts, run_conditions
from gpud.agent.telemetry.answers import Answer
from gpud.core.sample import Absent, Device, Failure, Inventory, Reading, Reason
from gpud.core.telemetry import LEVELS
from tests.events import Event, altered, inventory_taken, made, platform_read, source_answered

EMPTY = made("1", 0.0, platform={"kernel": "6.6.87.2-microsoft-standard-WSL2", "wsl": "2"})


def told(source: str, taken_s: float = 1.0, **fields: str | Absent) -> Event:
    readings = tuple(Reading(None, name, value, source) for name, value in fields.items())
    answer = Answer(source, LEVELS.index(source), taken_s, taken_s, readings)
    return source_answered(answer, taken_s)


def shown(source: str, *uuids: str) -> Event:
    readings = tuple(Reading(i, "uuid", uuid, source) for i, uuid in enumerate(uuids))
    return source_answered(Answer(source, LEVELS.index(source), 1.0, 1.0, readings), 1.0)


def listed(*uuids: str) -> Inventory:
    return Inventory(
        tuple(Device(i, u, "card", f"0000:0{i}:00.0", "8.9", 1, 1, 1) for i, u in enumerate(uuids))
    )


def test_each_fact_comes_with_the_level_of_its_source_and_the_moment_it_looked() -> None:
    snapshot = told("nvml", driver_version="572.16", nvml_version="570.86.09")(EMPTY)
    snapshot = told("dxg", 2.0, driver_folder="nv_dispi.inf_amd64_1", exposed="yes")(snapshot)
    snapshot = platform_read({"wsl_version": "2.6.1.0"}, 1.0)(snapshot)
    assert facts(snapshot, 3.0, "boot") == {
        "driver_version": Fact("572.16", 5, 1.0),
        "nvml_version": Fact("570.86.09", 5, 1.0),
        "driver_folder": Fact("nv_dispi.inf_amd64_1", 1, 2.0),
        "kernel": Fact("6.6.87.2-microsoft-standard-WSL2"),
        "wsl_version": Fact("2.6.1.0"),
        "boot_id": Fact("boot"),
    }


def test_a_reason_and_a_stale_value_are_no_facts() -> None:
    snapshot = told("nvml", driver_version=Absent.FAILED, cuda_version="12.8")(EMPTY)
    assert facts(snapshot, 1.0, "").keys() == {"cuda_version", "kernel"}
    assert facts(snapshot, 1e6, "").keys() == {"kernel"}


def test_the_gpus_are_those_that_cuda_lists() -> None:
    snapshot = shown("nvml", "GPU-2", "GPU-3")(EMPTY)
    assert "gpus" not in facts(snapshot, 1.0, "")  # CUDA was not asked yet
    taken = inventory_taken(listed("GPU-2", "GPU-1"), 1.0, 7.0)(snapshot)
    assert facts(taken, 1.0, "")["gpus"] == Fact("GPU-1,GPU-2", CUDA_LISTS, 7.0)


@pytest.mark.parametrize("source", ["nvml", "nvidia_smi_exe"])
def test_a_gpu_that_others_see_is_there_although_cuda_finds_no_device(source: str) -> None:
    none = Inventory(failure=Failure(Reason.NO_DEVICE, "none"))
    snapshot = inventory_taken(none, 1.0, 7.0)(shown(source, "GPU-1")(EMPTY))
    assert facts(snapshot, 1.0, "")["gpus"] == Fact("GPU-1", LEVELS.index(source), 1.0)


def test_of_the_others_the_best_alone_names_the_gpus() -> None:
    hung = Inventory(failure=Failure(Reason.HUNG, "no answer"))
    snapshot = inventory_taken(hung, 1.0, 7.0)(EMPTY)
    snapshot = shown("nvidia_smi_exe", "GPU-1", "GPU-2")(snapshot)
    first = Reading(0, "uuid", "GPU-1", "nvml")
    more = Reading(0, "name", "card", "nvml"), Reading(1, "uuid", Absent.FAILED, "nvml")
    answer = Answer("nvml", LEVELS.index("nvml"), 1.0, 1.0, (first, *more))
    snapshot = source_answered(answer, 1.0)(snapshot)
    assert facts(snapshot, 1.0, "")["gpus"] == Fact("GPU-1", LEVELS.index("nvml"), 1.0)


def test_a_run_is_kept_with_what_was_known_and_nothing_else() -> None:
    snapshot = told("nvml", driver_version="572.16", cuda_version="12.8")(EMPTY)
    snapshot = platform_read({"windows_build": "10.0.26100.4349"}, 1.0)(snapshot)
    assert run_conditions(snapshot, 1.0) == {
        "driver_version": "572.16",
        "cuda_version": "12.8",
        "windows_build": "10.0.26100.4349",
        "kernel": "6.6.87.2-microsoft-standard-WSL2",
    }
    assert run_conditions(altered(snapshot, platform={}), 1e6) == {}
