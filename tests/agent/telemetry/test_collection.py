"""The telemetry sources together: each is asked in turn, for what the others could not tell."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure.clocks import now
from gpud.agent.state.board import Board
from gpud.agent.telemetry import collection
from gpud.agent.telemetry.collection import Collection, Sources
from gpud.agent.telemetry.source import Context
from gpud.core.errors import TelemetryError
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent, Reading
from gpud.core.settings import parse
from gpud.core.telemetry import LEVELS, Answer, current
from tests.events import made, post, source_answered

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.telemetry.source import Source


class Scripted:
    """Says the same each time, and notes what it was asked for."""

    def __init__(self, name: str, fields: dict[str, float | str | Absent] | None) -> None:
        self.name = name
        self.fields = fields
        self.asked: list[frozenset[str]] = []
        self.busy = 0
        self.closed = False

    async def collect(self, wanted: frozenset[str]) -> Answer | None:
        self.asked.append(wanted)
        self.busy += 1
        assert self.busy == 1, "a collection began before the last one had ended"
        await asyncio.sleep(0)
        self.busy -= 1
        if self.fields is None:
            return None
        at = now()
        readings = tuple(Reading(0, name, value, self.name) for name, value in self.fields.items())
        return Answer(self.name, LEVELS.index(self.name), at.wall_s, at.mono_s, readings)

    async def close(self) -> None:
        self.closed = True


EVERYTHING: dict[str, float | str | Absent] = dict.fromkeys(WORTH_A_START, 1.0)


def together(
    *sources: Scripted, patience_s: float = collection.PATIENCE_S
) -> tuple[Collection, Board]:
    board = Board(made("1", 0.0))
    quick: dict[str, Source] = {}
    programs: dict[str, Source] = {}
    for source in sources:
        (programs if source.name.startswith("nvidia_smi") else quick)[source.name] = source
    together = Collection(
        Sources(quick, programs),
        read=board.read,
        post=lambda answer: post(board, source_answered(answer, 0.0)),
        now=now,
        patience_s=patience_s,
    )
    return together, board


def test_a_source_is_asked_for_what_those_before_it_could_not_tell() -> None:
    known = {**EVERYTHING, "utilization_gpu_ratio": Absent.UNSUPPORTED, "power_watts": 30.0}
    first, second = Scripted("nvml", known), Scripted("nvidia_smi_exe", None)
    both, _ = together(first, second)
    asyncio.run(both.collect())
    assert first.asked == [WORTH_A_START]
    assert second.asked == [frozenset({"utilization_gpu_ratio"})]


class Machine(Scripted):
    """Says something of the machine itself."""

    async def collect(self, wanted: frozenset[str]) -> Answer | None:
        answer = await super().collect(wanted)
        assert answer is not None
        return replace(answer, readings=tuple(replace(r, gpu=None) for r in answer.readings))


def test_for_a_gpu_that_was_switched_off_no_program_is_worth_its_start() -> None:
    for word, wanted in (("disabled", frozenset[str]()), ("no", WORTH_A_START)):
        program = Scripted("nvidia_smi_exe", None)
        both, _ = together(Machine("dxg", {"exposed": word}), program)
        asyncio.run(both.collect())
        assert program.asked == [wanted]


def test_collections_asked_for_at_once_follow_each_other() -> None:
    source = Scripted("nvml", {})
    one, _ = together(source)

    async def at_once() -> None:
        await asyncio.gather(*(one.collect() for _ in range(5)))

    asyncio.run(at_once())
    assert len(source.asked) == 5


def test_without_a_source_that_can_be_asked_at_any_moment_a_look_says_so() -> None:
    one, _ = together(Scripted("cuda", {}))
    with pytest.raises(TelemetryError) as caught:
        asyncio.run(one.look(1.0))
    assert caught.value.reason == "no_source"


def context(tmp_path: Path, text: str) -> Context:
    board = Board(made("1", 0.0))
    return Context(
        parse(text.encode(), {}),
        now=now,
        read=board.read,
        spawned=lambda: None,
        started=lambda _: None,
        own=tmp_path,
    )


def test_the_best_source_is_asked_first_and_programs_are_apart(tmp_path: Path) -> None:
    sources = collection.create(context(tmp_path, ""))
    assert list(sources.quick) == ["nvml", "cuda", "dxg"]
    assert list(sources.programs) == ["nvidia_smi_exe", "nvidia_smi"]


def test_a_source_that_is_switched_off_is_not_made(tmp_path: Path) -> None:
    off = collection.create(context(tmp_path, '[telemetry]\ndisabled = ["nvml", "nvidia_smi"]'))
    assert list(off.quick) == ["cuda", "dxg"]
    assert list(off.programs) == ["nvidia_smi_exe"]


class Dawdling(Scripted):
    """Answers when it is let go."""

    def __init__(self, name: str) -> None:
        super().__init__(name, {"temperature_celsius": 51.0})
        self.let_go = asyncio.Event()

    async def collect(self, wanted: frozenset[str]) -> Answer | None:
        await self.let_go.wait()
        return await super().collect(wanted)


def test_a_program_that_dawdles_delays_no_other_source_and_is_not_asked_twice() -> None:
    async def story() -> None:
        nvml, program = Scripted("nvml", {}), Dawdling("nvidia_smi_exe")
        both, board = together(nvml, program, patience_s=0.01)
        for _ in range(3):
            await both.collect()
        assert (len(nvml.asked), program.asked) == (3, [])
        program.let_go.set()
        await both.collect()
        assert len(program.asked) == 1
        [reading] = current(board.read().telemetry, now().mono_s)
        assert reading.source == "nvidia_smi_exe"
        await both.collect()
        assert len(program.asked) == 2

    asyncio.run(story())


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


def test_a_bug_in_what_asks_a_program_is_told_and_the_rest_is_asked() -> None:
    async def story() -> None:
        both, _ = together(nvml := Scripted("nvml", {}), Broken("nvidia_smi", None))
        for turn in (1, 2):
            with pytest.raises(RuntimeError, match="nvidia_smi was asked"):
                await both.collect()
            assert len(nvml.asked) == turn

    asyncio.run(story())
