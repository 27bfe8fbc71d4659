"""A recording holds every call with what C said, and the same calls make the readings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.telemetry.nvml import asking
from tests.standins.build import build_libnvml, rewrite_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_libnvml(tmp_path_factory.mktemp("nvml"))


def call(document: dict[str, Any], function: str, *arguments: int, gpu: int | None = 0) -> Any:
    [found] = [
        entry
        for entry in document["calls"]
        if (entry["call"], entry["gpu"], entry["arguments"]) == (function, gpu, list(arguments))
    ]
    return found["code"], found["value"]


def test_every_call_is_there_once_as_c_gave_it(library: Path) -> None:
    rewrite_script(
        library,
        f"devices 2\ndevice.0.energy_mj {2**64 - 1}\ndevice.0.temperature_c 4294967295\n"
        "device.1.fan_speed_percent none\ndevice.1.fail nvmlDeviceGetPowerUsage 999\n"
        "device.0.compute_pids 4711,4712\n",
    )
    document = asking.recorded(library)
    assert (document["library"], document["error"], document["missing"]) == (str(library), None, [])
    assert document["calls"][0] == {
        "call": "nvmlInitWithFlags",
        "gpu": None,
        "arguments": [0],
        "code": 0,
        "value": None,
    }
    assert call(document, "nvmlSystemGetNVMLVersion", gpu=None) == (0, "12.572.16")
    assert call(document, "nvmlDeviceGetCount_v2", gpu=None) == (0, 2)
    assert call(document, "nvmlDeviceGetHandleByIndex_v2", 1, gpu=None) == (0, None)
    assert call(document, "nvmlDeviceGetTotalEnergyConsumption") == (0, 2**64 - 1)
    assert call(document, "nvmlDeviceGetTemperature", 0) == (0, 2**32 - 1)
    assert call(document, "nvmlDeviceGetFanSpeed", gpu=1) == (3, None)
    assert call(document, "nvmlDeviceGetPowerUsage", gpu=1) == (999, None)
    assert call(document, "nvmlDeviceGetEnforcedPowerLimit", gpu=1) == (0, 200_000)
    assert call(document, "nvmlDeviceGetMemoryInfo") == (
        0,
        {"total": 8 << 30, "free": (7 << 30) - (200 << 20), "used": (1 << 30) + (200 << 20)},
    )
    assert call(document, "nvmlDeviceGetSupportedEventTypes") == (0, 0)
    assert call(document, "nvmlDeviceGetComputeRunningProcesses_v3") == (0, {"count": 2})
    assert "4711" not in str(document), "whose processes they are is not recorded"
    asked = [(e["call"], e["gpu"], tuple(e["arguments"])) for e in document["calls"]]
    assert len(asked) == len(set(asked))
    for gpu in (0, 1):
        assert {e["call"] for e in document["calls"] if e["gpu"] == gpu} == {
            e["call"] for e in document["calls"] if e["gpu"] == 0
        }


def test_functions_that_are_not_there_are_named(tmp_path: Path) -> None:
    without = ["nvmlDeviceGetFanSpeed", "nvmlDeviceGetMemoryInfo_v2"]
    document = asking.recorded(build_libnvml(tmp_path, without=without))
    assert document["missing"] == sorted(without)
    assert not {entry["call"] for entry in document["calls"]} & set(without)


def test_a_refused_start_is_the_first_and_only_call(library: Path) -> None:
    rewrite_script(library, "fail nvmlInitWithFlags 9\n")
    document = asking.recorded(library)
    [only] = document["calls"]
    assert (only["call"], only["code"]) == ("nvmlInitWithFlags", 9)


def test_without_a_library_the_loaders_words_are_recorded() -> None:
    document = asking.recorded("/nonexistent/libnvidia-ml.so.1")
    assert (document["library"], document["calls"], document["missing"]) == (None, [], [])
    assert "cannot open shared object" in document["error"]


def test_what_a_collection_asks_is_what_a_recording_holds(library: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    rewrite_script(library, f"log {log}\n")
    document = asking.recorded(library)
    told = {entry["call"] for entry in document["calls"]}
    log.unlink()
    asking.answers(library, "--pcie-throughput")
    asked = set(log.read_text().split())
    assert asked - {"nvmlErrorString"} <= told
