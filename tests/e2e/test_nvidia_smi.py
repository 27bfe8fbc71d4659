"""A machine in WSL without NVML: Windows' own nvidia-smi.exe is all there is to ask."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.telemetry.smi_world import EXE, WSL2, World, line
from tests.e2e.program import Program, only
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Machine(Program):
    """A gpud that looks at a tree of files in place of the machine."""

    def write_settings(self) -> None:
        super().write_settings()
        self.config.write_text(f'sysroot = "{self.home}"\n{self.config.read_text()}')

    def level(self) -> float | None:
        return self.value("gpud_telemetry_level")


@pytest.fixture
def home() -> Iterator[Path]:
    """One that any user can reach."""
    made = Path(tempfile.mkdtemp(prefix="gpud-e2e-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    made = World(home)
    made.kernel(WSL2)
    made.file("starts", "", mode=0o666)
    with made.interop():
        (home / "run/WSL/8_interop").chmod(0o777)
        yield made


@pytest.fixture
def gpud(home: Path) -> Iterator[Machine]:
    made = Machine(home=home, settings={"probes": only()})
    yield made
    if made.process is not None:
        made.stop()


def test_windows_answers_where_nvml_does_not_and_a_restart_starts_nothing_twice(
    world: World, gpud: Machine
) -> None:
    world.says(EXE, line() + "\r\n")
    gpud.start()
    until(lambda: gpud.level() == 4, "the level of nvidia-smi.exe")
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
