"""The telemetry sources together: each is asked in turn, for what the others could not tell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from gpud.agent.measure.clocks import now
from gpud.agent.state.board import Board
from gpud.agent.telemetry import collection, sources
from gpud.agent.telemetry.answers import Answer, current
from gpud.agent.telemetry.collection import Collection, SourceContext
from gpud.agent.telemetry.fields import FIELDS, WORTH_A_START
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS
from tests.events import made, post, source_answered

if TYPE_CHECKING:
    from gpud.agent.telemetry.collection import TelemetrySource


class Scripted:
    """Says the same each time, and notes what it was asked for."""

    def __init__(self, name: str, fields: dict[str, float | str | Absent] | None) -> None:
        self.name = name
        self.fields = fields
        self.requests: list[frozenset[str]] = []
        self.closed = False

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        self.requests.append(missing)
        if self.fields is None:
            return None
        at = now()
        readings = tuple(
            Reading(None if FIELDS[name].machine else 0, name, value, self.name)
            for name, value in self.fields.items()
        )
        return Answer(self.name, LEVELS.index(self.name), at.wall_s, at.mono_s, readings)

    async def close(self) -> None:
        self.closed = True


EVERYTHING: dict[str, float | str | Absent] = dict.fromkeys(WORTH_A_START, 1.0)


def context(board: Board, text: str = "") -> SourceContext:
    return SourceContext(parse(text.encode(), {}), board, now, Path("/nonexistent"))


def together(
    *sources: Scripted, patience_s: float = collection.PATIENCE_S
) -> tuple[Collection, Board]:
    board = Board(made("1", 0.0))
    quick: dict[str, TelemetrySource] = {}
    programs: dict[str, TelemetrySource] = {}
    for source in sources:
        (programs if source.name.startswith("nvidia_smi") else quick)[source.name] = source

    def publish(answer: Answer) -> None:
        post(board, source_answered(answer, 0.0))

    return Collection(context(board), publish, (quick, programs), patience_s=patience_s), board


async def test_a_source_is_asked_for_what_those_before_it_could_not_tell() -> None:
    fields = {**EVERYTHING, "utilization_gpu_ratio": Absent.UNSUPPORTED, "power_watts": 30.0}
    first, second = Scripted("nvml", fields), Scripted("nvidia_smi_exe", None)
    both, _ = together(first, second)
    await both.collect()
    assert first.requests == [WORTH_A_START]
    assert second.requests == [frozenset({"utilization_gpu_ratio"})]


async def test_for_a_gpu_that_was_switched_off_no_program_is_worth_its_start() -> None:
    for word, missing in (("disabled", frozenset[str]()), ("no", WORTH_A_START)):
        program = Scripted("nvidia_smi_exe", None)
        both, _ = together(Scripted("dxg", {"exposed": word}), program)
        await both.collect()
        assert program.requests == [missing]


async def test_without_a_source_that_can_be_asked_at_any_moment_a_look_says_so() -> None:
    alone, _ = together(Scripted("cuda", {}))
    with pytest.raises(TelemetryError) as caught:
        await alone.look(1.0)
    assert caught.value.reason == "no_source"


@pytest.mark.parametrize(
    ("settings", "quick", "programs"),
    [
        ("", ["nvml", "cuda", "dxg"], ["nvidia_smi_exe", "nvidia_smi"]),
        (
            '[telemetry]\ndisabled = ["nvml", "nvidia_smi"]',
            ["cuda", "dxg"],
            ["nvidia_smi_exe"],
        ),
    ],
)
def test_the_best_source_comes_first_programs_are_apart_and_a_disabled_source_is_not_made(
    settings: str, quick: list[str], programs: list[str]
) -> None:
    sources = collection.create(context(Board(made("1", 0.0)), settings))
    assert [list(group) for group in sources] == [quick, programs]


class Dawdling(Scripted):
    """Answers when it is let go."""

    def __init__(self, name: str) -> None:
        super().__init__(name, {"temperature_celsius": 51.0})
        self.let_go = asyncio.Event()

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        await self.let_go.wait()
        return await super().collect(missing)


async def test_a_program_that_dawdles_delays_no_other_source_and_is_not_asked_twice() -> None:
    nvml, program = Scripted("nvml", {}), Dawdling("nvidia_smi_exe")
    both, board = together(nvml, program, patience_s=0.01)
    for _ in range(3):
        await both.collect()
    assert (len(nvml.requests), program.requests) == (3, [])
    program.let_go.set()
    await both.collect()
    assert len(program.requests) == 1
    [reading] = current(board.read().telemetry, now().mono_s)
    assert reading.source == "nvidia_smi_exe"
    await both.collect()
    assert len(program.requests) == 2


def test_a_program_that_is_left_behind_does_not_keep_the_agent_from_ending() -> None:
    async def story() -> None:
        nvml, program = Scripted("nvml", {}), Dawdling("nvidia_smi")
        both, _ = together(nvml, program, patience_s=0.01)
        before = asyncio.all_tasks()
        await both.collect()
        assert asyncio.all_tasks() > before
        await both.close()
        assert asyncio.all_tasks() == before
        assert nvml.closed
        assert program.closed

    asyncio.run(asyncio.wait_for(story(), 5.0))


class Broken(Scripted):
    """Has a bug."""

    async def collect(self, missing: frozenset[str]) -> Answer | None:
        raise RuntimeError(f"{self.name} was asked for {len(missing)} fields")


async def test_a_bug_in_what_asks_a_program_is_told_and_the_rest_is_asked() -> None:
    both, _ = together(nvml := Scripted("nvml", {}), Broken("nvidia_smi", None))
    for turn in (1, 2):
        with pytest.raises(RuntimeError, match="nvidia_smi was asked"):
            await both.collect()
        assert len(nvml.requests) == turn


def test_source_that_has_no_level_is_refused_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "amd_smi.py").write_text("NAME = 'amd_smi'\ndef create(context): ...\n")
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    with capture_logs() as logged:
        quick, programs = collection.create(context(Board(made())))
    assert set(LEVELS[1:]) == {*quick, *programs}
    refused = [entry for entry in logged if entry["event"] == "telemetry_source_refused"]
    assert [(entry["source"], "LEVELS" in entry["reason"]) for entry in refused] == [
        ("amd_smi", True)
    ]
