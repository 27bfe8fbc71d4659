"""A GPU that NVML loses, and an NVML that dawdles, under a running gpud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, cuda, nvml, only, program
from tests.standins.build import build_libnvml, rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_S = 2.5
LEVEL = 5.0
TWO = "devices 2\n"
LOSES_ONE = f"{TWO}device.1.fail * 15 130\n"  # after its third collection or so


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(probes=only("launch")) as made:
        yield made


def level(gpud: Program) -> float | None:
    return gpud.value("gpud_telemetry_level")


def driver(gpud: Program) -> set[str]:
    return {
        version
        for name, labels in gpud.metrics()
        if name == "gpud_gpu_info" and (version := dict(labels).get("driver_version"))
    }


def test_a_lost_gpu_is_there_again_with_a_new_driver(gpud: Program) -> None:
    gpud.settings["nvml"] = nvml(gpud.home, f"{LOSES_ONE}driver_version 572.16\n")
    library = gpud.home / "driver/libnvidia-ml.so.1"
    newer = build_libnvml(gpud.home / "newer")
    gpud.start()
    until(lambda: gpud.value("gpud_gpu_temperature_celsius", gpu="1"), "the second GPU")
    until(
        lambda: gpud.value("gpud_gpu_temperature_celsius", gpu="1") is None, "the loss of that GPU"
    )
    assert gpud.value("gpud_gpu_temperature_celsius", gpu="0") == 41
    assert driver(gpud) == {"572.16"}

    rewrite_script(library, f"{TWO}driver_version 576.02\n")
    newer.replace(library)
    until(lambda: driver(gpud) == {"576.02"}, "the new driver")
    assert gpud.value("gpud_gpu_temperature_celsius", gpu="1") == 41
    assert level(gpud) == LEVEL
    assert "Traceback" not in gpud.logs()


def test_answer_of_a_slow_nvml_is_shown_when_it_comes(gpud: Program) -> None:
    slow = f"delay nvmlDeviceGetUtilizationRates {SLOW_S * 1000:.0f}\n"
    gpud.settings |= {"cuda": cuda(gpud.home), "nvml": nvml(gpud.home, slow)}
    gpud.start()
    until(lambda: gpud.value("gpud_probe_runs_total", probe="launch"), "a run")
    until(lambda: level(gpud) == LEVEL, "the slow answer")
    assert gpud.value("gpud_gpu_temperature_celsius", gpu="0") == 41
    assert "Traceback" not in gpud.logs()
