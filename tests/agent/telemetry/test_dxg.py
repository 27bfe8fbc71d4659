"""The machine as a source: trees of files, the real lister, and stores that do not answer."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gpud.agent.state.board import Board
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources.dxg import AGAIN_S, LISTER, Dxg
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Inventory, Reading
from gpud.core.settings import parse
from tests.events import inventory_taken, made, post, source_answered
from tests.fuse import stalling, usable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STORE = "usr/lib/wsl/drivers"
CARD = "sys/bus/pci/devices/0000:01:00.0"
BUS = {f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030000\n"}


@dataclass
class Machine:
    """A tree, what the agent knows, and a clock that a test sets."""

    root: Path
    at_s: float = 1000.0

    def __post_init__(self) -> None:
        self.board = Board(made("1", 0.0, platform={"wsl": "2"}))

    @property
    def started(self) -> int:
        return self.board.read().measure.children

    def put(self, path: str, text: str = "", modified_s: float | None = None) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if modified_s is not None:
            os.utime(place.parent, (modified_s, modified_s))

    def has_dxg(self) -> None:
        (self.root / "dev").mkdir(exist_ok=True)
        (self.root / "dev/dxg").symlink_to("/dev/null")

    def driver(self, version: str) -> None:
        readings = (Reading(None, "driver_version", version, "nvml"),)
        answer = Answer("nvml", 5, self.at_s, self.at_s, readings, holds_s=1e9)
        post(self.board, source_answered(answer, self.at_s))

    def source(self, lister: Sequence[str] = LISTER, *, deadline_s: float = 30.0) -> Dxg:
        settings = parse(f'sysroot = "{self.root}"'.encode(), {})
        context = SourceContext(settings, self.board, self.now, self.root)
        return Dxg(context, lister=lister, deadline_s=deadline_s)

    def now(self) -> Instant:
        return Instant(self.at_s, self.at_s)

    async def answered(self, source: Dxg) -> dict[str, float | str | Absent]:
        answer = await source.collect()
        assert (answer.source, answer.level, answer.reason) == ("dxg", 1, None)
        return {reading.field: reading.value for reading in answer.readings}

    async def once(self) -> dict[str, float | str | Absent]:
        return await self.answered(self.source())


async def test_wsl_with_a_gpu_tells_so_and_names_the_folder_of_its_driver(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.has_dxg()
    machine.put(f"{STORE}/nv_dispi.inf_amd64_old/libcuda.so.1.1", modified_s=1.0)
    machine.put(f"{STORE}/nv_dispi.inf_amd64_new/nvidia-smi", modified_s=2.0)
    machine.put(f"{STORE}/nvhda.inf_amd64_1/nvhda.sys", modified_s=3.0)
    machine.put(f"{STORE}/c_display.inf_amd64_1/display.sys", modified_s=4.0)
    assert await machine.once() == {"exposed": "yes", "driver_folder": "nv_dispi.inf_amd64_new"}


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["oem.inf_amd64_1/libcuda.so.1.1"], "oem.inf_amd64_1"),
        (["nv_used/libcuda.so.1.1", "nv_newer/libcuda.so.1.1"], "nv_used"),
        (["igdlh.inf_amd64_1/igd.so"], Absent.UNSUPPORTED),
        ([], Absent.UNSUPPORTED),
    ],
)
async def test_the_folder_is_that_of_the_library_in_use_else_of_any_driver_of_nvidia(
    folders: list[str], expected: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.has_dxg()
    for at, name in enumerate(folders):
        machine.put(f"{STORE}/{name}", modified_s=float(at))
    used = Inventory(driver_folder="nv_used")
    post(machine.board, inventory_taken(used, 1.0, 1.0))
    assert await machine.once() == {"exposed": "yes", "driver_folder": expected}


@pytest.mark.parametrize(
    ("platform", "files", "exposed"),
    [
        ({"wsl": "2"}, {"dev/dxg": "a file is no device"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled=true\n"}, "no"),
        ({"wsl": "2"}, {"etc/wsl.conf": "[gpu]\nenabled = false # a game needs it\n"}, "disabled"),
        ({"wsl": "1"}, BUS, "no"),
        ({"wsl": ""}, {}, "no"),
        ({"wsl": ""}, BUS, "yes"),
        ({"wsl": "", "container": "1"}, BUS, "no"),  # it was given none of its host's
        ({"wsl": "", "container": "1"}, {"dev/nvidia0": ""}, "yes"),
    ],
)
async def test_each_platform_has_its_own_sign_of_a_gpu(
    platform: dict[str, str], files: dict[str, str], exposed: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.board = Board(made("1", 0.0, platform=platform))
    for path, text in files.items():
        machine.put(path, text)
    assert (await machine.once())["exposed"] == exposed
    assert machine.started == (platform["wsl"] == "2")


async def test_the_store_is_listed_now_and_then_after_a_new_driver_and_twice_where_it_changed(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.put(f"{STORE}/nv_old/libcuda.so.1.1", modified_s=1.0)
    source, counts, folders = machine.source(), [], []
    for wait_s, driver, new in (
        (0, None, False),
        (10, None, False),
        (10, "1.0", False),
        (10, "1.0", False),
        (AGAIN_S, "1.0", True),
        (10, "1.0", False),
        (10, "1.0", False),
    ):
        machine.at_s += wait_s
        if driver is not None:
            machine.driver(driver)
        if new:
            machine.put(f"{STORE}/nv_new/libcuda.so.1.1", modified_s=2.0)
        folders.append((await machine.answered(source))["driver_folder"])
        counts.append(machine.started)
    assert counts == [1, 1, 2, 2, 3, 4, 4]
    assert folders == ["nv_old"] * 4 + ["nv_new"] * 3


HANGS = (sys.executable, "-I", "-c", "import signal; signal.pause()")


async def test_a_store_that_does_not_answer_is_a_reason_after_the_deadline(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.has_dxg()
    source = machine.source(HANGS, deadline_s=0.2)
    for _ in range(2):
        readings = await machine.answered(source)
        assert readings == {"exposed": "yes", "driver_folder": Absent.FAILED}
    assert machine.started == 1, "not again before the interval is over"


@pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")
async def test_beside_a_lister_in_state_d_no_other_is_started(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with stalling(tmp_path / "drive") as drive:
        source = machine.source(("/bin/cat", str(drive.path)), deadline_s=1.0)
        for _ in range(3):
            assert (await machine.answered(source))["driver_folder"] is Absent.FAILED
            machine.at_s += AGAIN_S
        assert machine.started == 1
        drive.answer()


@pytest.mark.parametrize(
    "program",
    [
        "print('no time')",
        "print('7 a/b')",
        "import sys; sys.exit('/usr/lib/wsl/drivers: Input/output error')",
        "import os; os.abort()",
        "print('x' * (2 << 20))",
        None,
    ],
)
async def test_a_lister_that_fails_in_any_way_is_a_reason(
    program: str | None, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    lister = (sys.executable, "-I", "-c", program) if program else ("/nonexistent/python",)
    reading = (await machine.source(lister).collect()).readings[1]
    assert (reading.field, reading.value) == ("driver_folder", Absent.FAILED)
    assert reading.detail
