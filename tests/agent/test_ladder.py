"""The telemetry sources together: each is asked in turn, for what the others could not tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gpud.agent import ladder
from gpud.agent.board import Board
from gpud.agent.clocks import now
from gpud.agent.ladder import Ladder
from gpud.agent.source import Context
from gpud.core.errors import TelemetryError
from gpud.core.fields import WORTH_A_START
from gpud.core.sample import Absent, Reading
from gpud.core.settings import parse
from gpud.core.snapshot import Snapshot
from gpud.core.telemetry import LEVELS, Answer, current

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.source import Source


class Scripted:
    """Says the same each time, and notes what it was asked for."""

    def __init__(self, name: str, fields: dict[str, float | str | Absent] | None) -> None:
        self.name = name
        self.fields = fields
        self.asked: list[frozenset[str]] = []
        self.busy = 0

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
        pass


EVERYTHING: dict[str, float | str | Absent] = dict.fromkeys(WORTH_A_START, 1.0)


def together(*sources: Scripted) -> tuple[Ladder, Board]:
    board = Board(Snapshot("1", 0.0))
    named: dict[str, Source] = {source.name: source for source in sources}
    return Ladder(named, read=board.read, post=board.post, now=now), board


def test_a_source_is_asked_for_what_those_before_it_could_not_tell() -> None:
    known = {**EVERYTHING, "utilization_gpu_ratio": Absent.UNSUPPORTED, "power_watts": 30.0}
    first, second = Scripted("nvml", known), Scripted("nvidia_smi_exe", None)
    both, _ = together(first, second)
    asyncio.run(both.collect())
    assert first.asked == [WORTH_A_START]
    assert second.asked == [frozenset({"utilization_gpu_ratio"})]


def test_a_source_with_nothing_new_to_say_leaves_what_it_said() -> None:
    source = Scripted("nvidia_smi_exe", {"temperature_celsius": 51.0})
    one, board = together(source)

    async def twice() -> None:
        await one.collect()
        source.fields = None
        await one.collect()

    asyncio.run(twice())
    [reading] = current(board.read().telemetry, now().mono_s)
    assert reading.value == 51.0


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
    board = Board(Snapshot("1", 0.0))
    return Context(
        parse(text.encode(), {}),
        now=now,
        read=board.read,
        spawned=lambda: None,
        started=lambda _: None,
        own=tmp_path,
    )


def test_programs_are_asked_last_and_the_best_source_first(tmp_path: Path) -> None:
    names = list(ladder.found(context(tmp_path, "")))
    assert names[0] == "nvml"
    programs = [name for name in names if name.startswith("nvidia_smi")]
    assert names[len(names) - len(programs) :] == programs


def test_a_source_that_is_switched_off_is_not_made(tmp_path: Path) -> None:
    assert "nvml" not in ladder.found(context(tmp_path, '[telemetry]\ndisabled = ["nvml"]'))
