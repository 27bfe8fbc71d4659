"""Changes of driver and machine: told, counted, stored, and restored by the next life."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries
from gpud.agent.history.queries import Window
from gpud.agent.history.store import History, Store
from gpud.agent.state.board import Board
from gpud.agent.state.changes import CUDA_LISTS, ChangeDetection, facts
from gpud.agent.state.facts import (
    BOOT_ID,
    CUDA_VERSION,
    DRIVER_VERSION,
    GPUS,
    Fact,
    FactsSoFar,
    changed,
    real,
    run_conditions,
)
from gpud.agent.state.presence import GPU_FORGOTTEN
from gpud.agent.telemetry.answers import Answer
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.core.health import Level
from gpud.core.sample import (
    Absent,
    Failure,
    Inventory,
    Reading,
    Reason,
)
from gpud.core.telemetry import LEVELS
from gpud.document.machine import ChangeReport
from tests.agent.state.folding import listed
from tests.events import (
    Event,
    altered,
    inventory_taken,
    made,
    platform_read,
    post,
    says,
    source_answered,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


DRIVER_KIND = DRIVER_VERSION
NVML = 5


def seen(kind: str, looks: str) -> list[ChangeReport]:
    """Look every second: "572.16@4 -" is a text of a source of level 4, and then none."""
    known, changes = FactsSoFar(), list[ChangeReport]()
    for now_s, look in enumerate(looks.split(), 1):
        text, _, level = look.partition("@")
        facts = {} if text == "-" else {kind: Fact(text, int(level or NVML), float(now_s))}
        known, more = changed(known, facts, float(now_s), "boot")
        changes += more
    return changes


@pytest.mark.parametrize(
    ("kind", "looks", "changes"),
    [
        pytest.param(DRIVER_KIND, "572.16 572.16", [(None, "572.16")], id="first sight"),
        pytest.param(
            DRIVER_KIND,
            "572.16 572.16 576.02 576.02 576.02",
            [(None, "572.16"), ("572.16", "576.02")],
            id="replaced driver",
        ),
        pytest.param(
            DRIVER_KIND, "572.16 572.16 0.0 572.16 572.16", [(None, "572.16")], id="nonsense once"
        ),
        pytest.param(DRIVER_KIND, "572.16 572.16 - - 572.16", [(None, "572.16")], id="silence"),
        pytest.param(
            DRIVER_KIND,
            "572.16@4 572.16@4 576.02@4 576.02@5",
            [(None, "572.16")],
            id="two sources, once each",
        ),
        pytest.param(
            DRIVER_KIND,
            "572.16 572.16 572.160 572.160",
            [(None, "572.16"), ("572.16", "572.160")],
            id="another number of one source",
        ),
        pytest.param(
            DRIVER_KIND,
            "57@4 57@4 570 570",
            [(None, "57"), ("57", "570")],
            id="without a point a zero at the end counts",
        ),
        pytest.param(
            DRIVER_KIND,
            "572.16 572.16 572.160@4 572.160@4 572.16 572.16",
            [(None, "572.16")],
            id="two spellings of one driver",
        ),
        pytest.param(
            DRIVER_KIND,
            "595.71 595.71 595.45.03@3 595.45.03@3 595.71 595.71",
            [(None, "595.71")],
            id="number of WSL's own library",
        ),
        pytest.param(
            DRIVER_KIND,
            "572.16 572.16 576.02@4 576.02@4 576.02 576.02",
            [(None, "572.16"), ("572.16", "576.02")],
            id="lower source that counts alike",
        ),
        pytest.param(
            CUDA_VERSION, "12.8 12.8 12.6@2 12.6@2 12.8", [(None, "12.8")], id="lower source"
        ),
        pytest.param(
            CUDA_VERSION,
            "12.6@2 12.6@2 12.8 12.8",
            [(None, "12.6"), ("12.6", "12.8")],
            id="higher source",
        ),
        pytest.param(
            GPUS,
            "A A,B A A",
            [(None, "A"), ("A", "A,B"), ("A,B", "A")],
            id="new GPU at once, lost GPU when missed twice",
        ),
        pytest.param(GPUS, "A B", [(None, "A")], id="GPU in the place of another, once"),
        pytest.param(
            GPUS, "A B B", [(None, "A"), ("A", "B")], id="GPU in the place of another, twice"
        ),
    ],
)
def test_fact_that_held_for_two_looks_is_a_change(
    kind: str, looks: str, changes: list[tuple[str | None, str]]
) -> None:
    assert [(change.old, change.new) for change in seen(kind, looks)] == changes


def test_change_has_the_moment_of_the_first_look_and_first_sights_are_none() -> None:
    changes = seen(DRIVER_KIND, "572.16 572.16 572.16 576.02 576.02")
    assert changes[-1] == ChangeReport(DRIVER_KIND, "572.16", "576.02", 4.0, "boot", NVML)
    assert real(changes) == (changes[-1],)


def test_same_look_twice_is_one_look_and_a_fact_without_looks_needs_no_second() -> None:
    known, changes = changed(FactsSoFar(), {DRIVER_KIND: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    again, more = changed(known, {DRIVER_KIND: Fact("1.0", NVML, 7.0)}, 0.0, "boot")
    assert (changes, more, again.held) == ((), (), {})
    _, (boot,) = changed(FactsSoFar(), {BOOT_ID: Fact("one")}, 1.0, "one")
    assert (boot.old, boot.new) == (None, "one")


@dataclass
class Life:
    """One agent's life on a history that outlives it."""

    history: History
    boot_id: str = "boot-1"
    at_s: float = 100.0

    def __post_init__(self) -> None:
        self.board = Board(made("1", 0.0, platform={"kernel": "6.6"}), lambda: self.at_s)
        self.changes = ChangeDetection(
            self.history, self.board, lambda: Instant(self.at_s, self.at_s), self.boot_id
        )

    def nvml_answers(self, version: str | None, times: int = 2) -> None:
        """NVML answers, or is not there."""
        for _ in range(times):
            self.at_s += 1
            reading = Reading(None, "driver_version", version or "", "nvml")
            readings = () if version is None else (reading,)
            self.changes.answered(Answer("nvml", 5, self.at_s, self.at_s, readings))

    def lists(self, inventory: Inventory, times: int = 2) -> None:
        for _ in range(times):
            self.at_s += 1
            post(self.board, inventory_taken(inventory, self.at_s, self.at_s))
            self.changes.compare()

    def shown_changes(self, kind: str = "driver_version") -> list[tuple[str | None, str | None]]:
        return [(c.old, c.new) for c in self.board.read().changes.latest if c.kind == kind]

    def counted(self, kind: str = "driver_version") -> int:
        return self.board.read().changes.counts.get(kind, 0)


@contextlib.asynccontextmanager
async def life(
    folder: Path, boot_id: str = "boot-1", *, killed: bool = False
) -> AsyncIterator[Life]:
    """``killed``: nothing that waits is written at the end, as after SIGKILL."""
    made = Life(History(folder), boot_id)
    await made.changes.begin()
    try:
        yield made
    finally:
        await (made.history.ask(Store.close) if killed else made.history.close())


def stored(folder: Path, *kinds: str) -> list[tuple[object, object]]:
    store = Store(folder)
    entries = store.read(queries.events, Window(kinds=kinds or ("driver_version",)))
    store.close()
    return [(entry.body["old"], entry.body["new"]) for entry in reversed(entries)]


async def test_a_driver_swapped_while_gpud_runs_is_told_counted_and_kept(tmp_path: Path) -> None:
    async with life(tmp_path) as agent:
        agent.nvml_answers("572.16")
        assert (agent.shown_changes(), agent.counted()) == ([], 0)  # a first sight is no change
        agent.nvml_answers("576.02")
        assert (agent.shown_changes(), agent.counted()) == ([("572.16", "576.02")], 1)
    assert stored(tmp_path) == [(None, "572.16"), ("572.16", "576.02")]


async def test_a_driver_swapped_while_gpud_is_down_is_told_at_the_first_sight(
    tmp_path: Path,
) -> None:
    async with life(tmp_path) as agent:
        agent.nvml_answers("572.16")
    async with life(tmp_path, "boot-2") as agent:
        assert agent.shown_changes() == []
        agent.nvml_answers("576.02")
        assert (agent.shown_changes(), agent.counted()) == ([("572.16", "576.02")], 1)
        assert agent.shown_changes("boot_id") == [("boot-1", "boot-2")]
    async with life(tmp_path, "boot-2") as agent:
        agent.nvml_answers("576.02", times=5)
        assert agent.shown_changes() == [("572.16", "576.02")]  # known from the history ...
        assert agent.counted() == 0  # ... and not counted again
    assert stored(tmp_path) == [(None, "572.16"), ("572.16", "576.02")]
    assert stored(tmp_path, "boot_id") == [(None, "boot-1"), ("boot-1", "boot-2")]


async def test_killed_between_sight_and_writing_it_is_found_again_and_not_doubled(
    tmp_path: Path,
) -> None:
    async with life(tmp_path) as agent:
        agent.nvml_answers("572.16")
    async with life(tmp_path, killed=True) as agent:
        agent.nvml_answers("576.02")
        assert agent.counted() == 1
    assert stored(tmp_path) == [(None, "572.16")]
    async with life(tmp_path) as agent:
        agent.nvml_answers("576.02")
        assert agent.counted() == 1
    async with life(tmp_path) as agent:
        agent.nvml_answers("576.02")
        assert agent.counted() == 0
    assert stored(tmp_path) == [(None, "572.16"), ("572.16", "576.02")]


@pytest.mark.parametrize("at_start", [True, False])
async def test_change_of_while_the_history_is_away_is_written_when_it_is_back(
    tmp_path: Path,
    at_start: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"
    folder.mkdir()

    async with life(folder) as agent:
        agent.nvml_answers("572.16")
    if at_start:
        folder.rename(away)
        agent = Life(History(folder))
        task = asyncio.create_task(agent.changes.run())
        with pytest.raises(StoreError):
            await agent.changes.begin()
    else:
        agent = Life(History(folder))
        await agent.changes.begin()
        task = asyncio.create_task(agent.changes.run())
        await agent.history.ask(Store.close)
        folder.rename(away)
        agent.nvml_answers("576.02")
        for _ in range(2):  # the open file is gone, and then there is none to open
            with contextlib.suppress(StoreError):
                await agent.history.append()
        assert agent.shown_changes() == [("572.16", "576.02")]
    away.rename(folder)
    agent.nvml_answers("576.02")
    if at_start:
        await agent.changes.begin()
        agent.nvml_answers("576.02")
    await agent.history.append()
    assert (agent.shown_changes(), agent.counted()) == ([("572.16", "576.02")], 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await agent.history.close()
    assert stored(folder) == [(None, "572.16"), ("572.16", "576.02")]


async def test_a_lost_gpu_is_missed_by_the_next_life_too_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    async with life(tmp_path) as agent:
        agent.lists(listed("A", "B"))
        agent.lists(listed("B"), times=1)
        assert agent.shown_changes("gpus") == []  # it may be back in a moment ...
        assert agent.board.read().health["devices"].level is Level.FAILED  # ... and is missing
        agent.lists(listed("B"), times=1)
        assert agent.shown_changes("gpus") == [("A,B", "B")]
    async with life(tmp_path) as agent:
        agent.lists(listed("B"))
        health = agent.board.read().health["devices"]
        assert (health.level, health.reason) == (Level.FAILED, "gpu_vanished")
        since = "1970-01-01 00:01 UTC"  # since it was lost, not since now
        assert health.detail == f"CUDA no longer offers GPU (card A, A) since {since}"
        assert "gpud gpus forget A" in (health.fix or "")
        assert agent.board.read().health["cuda"].level is Level.OK
        await agent.changes.forget({"A": agent.board.read().changes.expected["A"]}, uid=7)
        stored = (await agent.history.read(queries.gpu_events))[-1]
        assert (stored.kind, stored.body["uuid"], stored.body["uid"]) == (GPU_FORGOTTEN, "A", 7)
        assert agent.board.read().health["devices"].level is Level.OK
    async with life(tmp_path) as agent:
        agent.lists(listed("B"))
        assert agent.board.read().health["devices"].level is Level.OK


EMPTY = made("1", 0.0, platform={"kernel": "6.6.87.2-microsoft-standard-WSL2", "wsl": "2"})


def shown(source: str, *uuids: str) -> Event:
    readings = tuple(Reading(i, "uuid", uuid, source) for i, uuid in enumerate(uuids))
    return source_answered(Answer(source, LEVELS.index(source), 1.0, 1.0, readings), 1.0)


def test_each_fact_comes_with_the_level_of_its_source_and_the_moment_it_looked() -> None:
    snapshot = says("nvml", gpu=None, driver_version="572.16", nvml_version="570.86.09")(EMPTY)
    folder = "nv_dispi.inf_amd64_1"
    snapshot = says("dxg", 2.0, gpu=None, driver_folder=folder, exposed="yes")(snapshot)
    snapshot = platform_read({"wsl_version": "2.6.1.0"}, 1.0)(snapshot)
    assert facts(snapshot, 3.0, "boot") == {
        "driver_version": Fact("572.16", 5, 1.0),
        "nvml_version": Fact("570.86.09", 5, 1.0),
        "driver_folder": Fact("nv_dispi.inf_amd64_1", 1, 2.0),
        "kernel": Fact("6.6.87.2-microsoft-standard-WSL2"),
        "wsl_version": Fact("2.6.1.0"),
        "boot_id": Fact("boot"),
    }


def test_a_reason_and_a_stale_value_are_no_facts() -> None:
    snapshot = says("nvml", gpu=None, driver_version=Absent.FAILED, cuda_version="12.8")(EMPTY)
    assert facts(snapshot, 1.0, "").keys() == {"cuda_version", "kernel"}
    assert facts(snapshot, 1e6, "").keys() == {"kernel"}


def test_the_gpus_are_those_that_cuda_lists() -> None:
    snapshot = shown("nvml", "GPU-2", "GPU-3")(EMPTY)
    assert "gpus" not in facts(snapshot, 1.0, "")  # CUDA was not asked yet
    taken = inventory_taken(listed("GPU-2", "GPU-1"), 1.0, 7.0)(snapshot)
    assert facts(taken, 1.0, "")["gpus"] == Fact("GPU-1,GPU-2", CUDA_LISTS, 7.0)


@pytest.mark.parametrize("source", ["nvml", "nvidia_smi_exe"])
def test_a_gpu_that_others_see_is_not_gone_although_cuda_finds_no_device(source: str) -> None:
    none = Inventory(failure=Failure(Reason.NO_DEVICE, "none"))
    alone, seen = (inventory_taken(none, 1.0, 7.0)(s) for s in (EMPTY, shown(source, "A")(EMPTY)))
    assert facts(alone, 1.0, "")["gpus"] == Fact("", CUDA_LISTS, 7.0)
    assert "gpus" not in facts(seen, 1.0, "")
    later = inventory_taken(none, 1.0, 1e6)(shown(source, "A")(EMPTY))  # others saw it days ago
    assert facts(later, 1e6, "")["gpus"] == Fact("", CUDA_LISTS, 1e6)


def test_a_run_is_kept_with_what_was_known_and_nothing_else() -> None:
    snapshot = says("nvml", gpu=None, driver_version="572.16", cuda_version="12.8")(EMPTY)
    snapshot = platform_read({"windows_build": "10.0.26100.4349"}, 1.0)(snapshot)
    assert run_conditions(snapshot, 1.0) == {
        "driver_version": "572.16",
        "cuda_version": "12.8",
        "windows_build": "10.0.26100.4349",
        "kernel": "6.6.87.2-microsoft-standard-WSL2",
    }
    assert run_conditions(altered(snapshot, platform={}), 1e6) == {}
