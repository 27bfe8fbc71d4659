"""The machine as a source: trees of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gpud.agent.state.board import Board
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.sources.dxg import Dxg
from gpud.core.clock import Instant
from gpud.core.settings import parse
from tests.events import made

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.core.sample import Absent

CARD = "sys/bus/pci/devices/0000:01:00.0"
BUS = {f"{CARD}/vendor": "0x10de\n", f"{CARD}/class": "0x030000\n"}


@dataclass
class Machine:
    """A tree, what the agent knows, and a clock that a test sets."""

    root: Path
    at_s: float = 1000.0

    def __post_init__(self) -> None:
        self.board = Board(made("1", 0.0, platform={"wsl": "2"}))

    def put(self, path: str, text: str = "") -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def has_dxg(self) -> None:
        (self.root / "dev").mkdir(exist_ok=True)
        (self.root / "dev/dxg").symlink_to("/dev/null")

    def now(self) -> Instant:
        return Instant(self.at_s, self.at_s)

    async def once(self) -> dict[str, float | str | Absent]:
        settings = parse(f'sysroot = "{self.root}"'.encode(), {})
        answer = await Dxg(SourceContext(settings, self.board, self.now, self.root)).collect()
        assert (answer.source, answer.level, answer.reason) == ("dxg", 1, None)
        return {reading.field: reading.value for reading in answer.readings}


async def test_wsl_with_a_gpu_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.has_dxg()
    assert await machine.once() == {"exposed": "yes"}


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
