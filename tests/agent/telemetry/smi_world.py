"""A machine with scripts in place of nvidia-smi and Windows, and a clock that is set by hand."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpud.agent import platform
from gpud.agent.state.board import Board
from gpud.agent.telemetry.answers import Answer
from gpud.agent.telemetry.collection import SourceContext
from gpud.agent.telemetry.smi_output import COLUMNS
from gpud.agent.telemetry.sources.nvidia_smi_exe import NvidiaSmi
from gpud.core.clock import Instant
from gpud.core.sample import Absent, Reading
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS
from tests.events import answers_to, made

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.telemetry.collection import TelemetrySource

LINUX = "6.1.0-28-amd64\n"
WSL2 = "5.15.167.4-microsoft-standard-WSL2\n"
EXE = "mnt/c/Windows/System32/nvidia-smi.exe"

CELLS = {
    "index": "0",
    "count": "1",
    "uuid": "GPU-1",
    "name": "NVIDIA RTX",
    "driver_version": "572.16",
    "memory.total": "8188",
    "memory.used": "1208",
    "utilization.gpu": "7",
    "temperature.gpu": "48",
    "power.draw": "13.57",
    "clocks.mem": "8001",
    "clocks.sm": "2235",
    "pstate": "P8",
    "clocks_throttle_reasons.active": "0x0000000000000001",
}


def line(**changed: str) -> str:
    """What a GPU says whose other fields are not there."""
    cells = CELLS | {name.replace("__", "."): cell for name, cell in changed.items()}
    names = ["index", "count", *(column.name for column in COLUMNS)]
    return ", ".join(cells.get(name, "[N/A]") for name in names)


@dataclass
class World:
    """A tree of files, and the agent's end of it."""

    root: Path
    mono_s: float = 1000.0
    wall_s: float = 1_790_000_000.0
    settings: str = ""

    def __post_init__(self) -> None:
        self.own = self.root / "own"
        self.own.mkdir(exist_ok=True)
        self.kernel(LINUX)

    def kernel(self, release: str) -> None:
        self.file("proc/sys/kernel/osrelease", release)
        self.board = Board(made("1", 0.0, platform=platform.facts(str(self.root))))

    def file(self, name: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    def program(self, name: str, script: str) -> Path:
        """Put a shell script that notes each start of it."""
        text = f'#!/bin/sh\necho "$*" >>{self.root}/starts\n{script}\n'
        return self.file(name, text, mode=0o755)

    def says(self, name: str, output: str | bytes, code: int = 0) -> Path:
        path = self.file(f"{name}.says", output)
        return self.program(name, f"cat {path}\nexit {code}")

    def interop(self) -> socket.socket:
        """Register Windows programs, and open a session that can start them."""
        self.file("proc/sys/fs/binfmt_misc/WSLInterop", "enabled\ninterpreter /init\n")
        return self.session(8)

    def session(self, pid: int) -> socket.socket:
        folder = self.root / "run/WSL"
        folder.mkdir(parents=True, exist_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(folder / f"{pid}_interop"))
        listening.listen(4)
        return listening

    @property
    def starts(self) -> list[str]:
        path = self.root / "starts"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def counted(self) -> int:
        return sum(self.board.read().telemetry.starts.values())

    def now(self) -> Instant:
        return Instant(self.wall_s, self.mono_s)

    def later(self, seconds: float) -> None:
        self.mono_s += seconds
        self.wall_s += seconds

    def context(self) -> SourceContext:
        settings = parse(f'sysroot = "{self.root}"\n{self.settings}'.encode(), {})
        return SourceContext(settings, self.board, self.now, self.own)

    def source(self, path: Path, *, deadline_s: float = 10.0) -> NvidiaSmi:
        self.settings = f'[telemetry]\nnvidia_smi_exe = "{path}"\n'
        return NvidiaSmi(self.context(), deadline_s=deadline_s)

    async def collect(self, source: TelemetrySource) -> Answer | None:
        """Ask, and publish the answer."""
        answer = await source.collect()
        if answer is not None:
            answers_to(self.board).answered(answer)
        return answer

    def told(self, source: str, reason: str | None = None, **texts: str) -> None:
        """Publish an answer of another source, about the machine."""
        readings = tuple(Reading(None, name, text, source) for name, text in texts.items())
        level = LEVELS.index(source)
        answers_to(self.board).answered(
            Answer(source, level, self.wall_s, self.mono_s, readings, holds_s=1e9, reason=reason)
        )

    async def answer(self, source: TelemetrySource) -> Answer:
        answer = await self.collect(source)
        assert answer is not None
        return answer


def values(answer: Answer | None) -> dict[str, float | str | Absent]:
    assert answer is not None
    assert answer.reason is None, answer.detail
    return {reading.field: reading.value for reading in answer.readings}


async def once(world: World, path: Path, *, deadline_s: float = 10.0) -> Answer:
    return await world.answer(world.source(path, deadline_s=deadline_s))
