"""A machine in WSL without NVML: Windows' own nvidia-smi.exe is all there is to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.telemetry.smi_world import EXE, WSL2, World, line
from tests.e2e.program import Program, only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program(probes=only()) as made:
        made.sysroot = str(made.home)
        yield made


@pytest.fixture
def world(gpud: Program) -> Iterator[World]:
    made = World(gpud.home)
    made.kernel(WSL2)
    made.file("starts", "", mode=0o666)
    with made.interop():
        (gpud.home / "run/WSL/8_interop").chmod(0o777)
        yield made


def test_windows_answers_where_nvml_does_not_and_a_restart_starts_nothing_twice(
    world: World, gpud: Program
) -> None:
    world.says(EXE, line() + "\r\n")
    gpud.start()
    until(lambda: gpud.value("gpud_telemetry_level") == 4, "the level of nvidia-smi.exe")
    assert gpud.value("gpud_gpu_temperature_celsius", gpu="0") == 48
    source = {"field": "temperature_celsius", "source": "nvidia_smi_exe"}
    assert gpud.value("gpud_telemetry_source_info", **source) == 1
    starts = {"source": "nvidia_smi_exe"}
    assert gpud.value("gpud_telemetry_program_starts_total", **starts) == 1
    assert gpud.health("nvml", 1)
    gpud.stop()
    gpud.start()
    gpud.health("nvml", 2)
    assert gpud.value("gpud_gpu_temperature_celsius", gpu="0") is None
    assert gpud.value("gpud_telemetry_program_starts_total", **starts) == 0
    assert len(world.starts) == 1
    assert "Traceback" not in gpud.logs()
