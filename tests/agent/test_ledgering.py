"""The keeper of the ledger over a real history: what is published, written, and known again."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent import alertrows
from gpud.agent.board import Board
from gpud.agent.ledgering import Keeper
from gpud.agent.store import FILE, History
from gpud.core import ledger
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.core.events import HealthSet
from gpud.core.health import Level
from gpud.core.snapshot import Snapshot
from gpud.core.text import escaped
from tests.core.findings import NOW_S, alarm, found, grave
from tests.snapshots import full

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gpud.core.alerts import Alert


@dataclass
class Life:
    """One life of an agent: a keeper with a board, and a clock that is moved by hand."""

    history: History
    mono_s: float = 500.0
    board: Board = field(default_factory=lambda: Board(Snapshot("0.1.0", NOW_S)))

    def __post_init__(self) -> None:
        self.keeper = Keeper(
            self.history,
            read=self.board.read,
            publish=self.board.post,
            now=lambda: Instant(NOW_S + self.mono_s, self.mono_s),
        )

    def health(self, level: Level, component: str = "dockerd", detail: str = "down") -> None:
        now_s = NOW_S + self.mono_s
        self.board.post(HealthSet(component, level, now_s, reason="x", detail=detail, fix="up"))

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.mono_s += 1
            self.keeper.step()

    @property
    def firing(self) -> list[Alert]:
        return [one for one in self.board.read().alerts if one.firing]

    async def rows(self) -> list[dict[str, Any]]:
        return await self.history.ask(
            lambda store: store.read(lambda rows: alertrows.within(rows, 0.0))
        )


def living(folder: Path, test: Callable[[Life], Awaitable[None]], **life: Any) -> None:
    async def lived() -> None:
        history = History(folder, now=lambda: "stamp")
        try:
            await test(Life(history, **life))
        finally:
            await history.close()

    asyncio.run(lived())


def test_what_is_found_is_published_and_written_and_known_by_the_next_life(tmp_path: Path) -> None:
    async def first(life: Life) -> None:
        await life.keeper.begin()
        life.keeper.found(grave(), NOW_S)
        life.keeper.acknowledged(ledger.everything(life.keeper.ledger)[0].fingerprint, NOW_S + 1)
        await life.keeper.settle()
        (row,) = await life.rows()
        (one,) = life.firing
        assert (row["fingerprint"], row["summary"]) == (one.fingerprint, one.summary)
        assert row["evidence"][0]["slowdown"] == pytest.approx(1.6)

    async def second(life: Life) -> None:
        assert life.firing == []
        await life.keeper.begin()
        await life.keeper.settle()
        (one,) = life.firing
        assert one.acknowledged_s == NOW_S + 1
        life.keeper.found(grave(), NOW_S + 900)  # as a replay does
        await life.keeper.settle()
        assert life.firing == [one]
        life.keeper.forgotten(grave().key, NOW_S + 901)
        await life.keeper.close()
        (row,) = await life.rows()
        assert (row["ends_s"], row["firing"], life.firing) == (NOW_S + 901, False, [])

    living(tmp_path, first)
    living(tmp_path, second)


def test_what_was_not_written_when_it_was_killed_is_found_again_and_told_once(
    tmp_path: Path,
) -> None:
    async def killed(life: Life) -> None:
        await life.keeper.begin()
        life.keeper.found(grave(), NOW_S)
        life.keeper.step()
        assert len(life.firing) == 1

    async def replayed(life: Life) -> None:
        await life.keeper.begin()
        with life.keeper.held():
            life.keeper.found(grave(), NOW_S)
            life.keeper.found(found("graph", alarm(seq=9)), NOW_S)
            life.keeper.step()
            await life.keeper.settle()
            assert life.firing == []
            life.keeper.forgotten(found("graph").key, NOW_S + 5)
        await life.keeper.settle()
        assert [row.stream.mode for row in life.firing[0].evidence] == ["submit"]
        assert len(await life.rows()) == 1

    living(tmp_path, killed)
    living(tmp_path, replayed)


def test_a_quiet_keeper_writes_nothing(tmp_path: Path) -> None:
    async def quiet(life: Life) -> None:
        await life.keeper.begin()
        life.pass_s(1)  # it learns what machine this is
        life.keeper.found(grave(), NOW_S)
        await life.keeper.settle()
        with sqlite3.connect(tmp_path / FILE) as other:
            before = other.execute("PRAGMA data_version").fetchone()
            for _ in range(50):
                life.pass_s(10)
                life.keeper.found(grave(), NOW_S)
                await life.keeper.settle()
            assert other.execute("PRAGMA data_version").fetchone() == before
            life.keeper.forgotten(grave().key, NOW_S)
            await life.keeper.settle()
            assert other.execute("PRAGMA data_version").fetchone() != before
        other.close()

    living(tmp_path, quiet)


def test_a_failed_component_is_told_of_and_a_restart_does_not_end_that(tmp_path: Path) -> None:
    async def first(life: Life) -> None:
        await life.keeper.begin()
        life.health(Level.FAILED)
        life.pass_s(119)
        assert life.firing == []
        life.pass_s(2)
        (one,) = life.firing
        assert (one.name, one.labels, one.fix) == ("GpudUnwell", {"component": "dockerd"}, "up")
        await life.keeper.close()

    async def second(life: Life) -> None:
        await life.keeper.begin()
        life.pass_s(30)  # nobody has said anything of dockerd yet
        assert len(life.firing) == 1
        life.health(Level.FAILED)
        life.pass_s(30)
        assert len(life.firing) == 1
        life.health(Level.OK)
        life.pass_s(1)
        assert life.firing == []

    async def third(life: Life) -> None:
        await life.keeper.begin()
        life.pass_s(5)
        assert len(life.firing) == 1
        life.pass_s(900)
        assert life.firing == []  # a component that nobody speaks of any more

    living(tmp_path, first)
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / FILE).write_bytes((tmp_path / FILE).read_bytes())
    living(tmp_path, second)
    living(copied, third)


def test_while_the_history_cannot_be_read_one_is_told_all_the_same(tmp_path: Path) -> None:
    async def before(life: Life) -> None:
        await life.keeper.begin()
        life.keeper.found(found("graph"), NOW_S)
        await life.keeper.close()

    async def blocked(life: Life) -> None:
        with pytest.raises(StoreError):
            await life.keeper.begin()
        life.health(Level.FAILED, "store")
        life.keeper.found(grave(), NOW_S)
        life.pass_s(130)
        await life.keeper.settle()
        assert {one.name for one in life.firing} == {"GpudUnwell", "GpudDriverRegression"}
        aside.rename(folder)
        await life.keeper.begin()
        await life.keeper.settle()
        told = {one.name: one for one in life.firing}
        assert len(told["GpudDriverRegression"].evidence) == 2
        assert len(await life.rows()) == 2

    folder, aside = tmp_path / "state", tmp_path / "aside"
    folder.mkdir()
    living(folder, before)
    folder.rename(aside)
    living(folder, blocked)


def test_a_state_that_is_damaged_is_begun_anew_and_what_it_told_is_over(tmp_path: Path) -> None:
    async def before(life: Life) -> None:
        await life.keeper.begin()
        life.keeper.found(grave(), NOW_S)
        await life.keeper.close()

    async def after(life: Life) -> None:
        await life.keeper.begin()
        await life.keeper.settle()
        assert life.firing == []
        (row,) = await life.rows()
        assert (row["firing"], row["ends_s"], row["summary"][:10]) == (
            False,
            NOW_S + 500.0,
            "submission",
        )

    living(tmp_path, before)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE states SET body = '[1' WHERE name = 'ledger'")
    connection.close()
    living(tmp_path, after)


def test_a_file_that_was_begun_anew_meanwhile_gets_all_that_is_known(tmp_path: Path) -> None:
    async def first(life: Life) -> None:
        await life.keeper.begin()
        life.keeper.found(grave(), NOW_S)
        await life.keeper.settle()
        _delete(tmp_path)
        await life.history.append()  # as the next run does
        await life.keeper.settle()
        assert len(await life.rows()) == 1

    async def second(life: Life) -> None:
        await life.keeper.begin()
        await life.keeper.settle()
        assert len(life.firing) == 1

    living(tmp_path, first)
    living(tmp_path, second)


def _delete(folder: Path) -> None:
    for file in folder.glob(f"{FILE}*"):
        file.unlink()


def test_that_there_is_nothing_to_tell_is_said_once_the_past_is_known(tmp_path: Path) -> None:
    async def test(life: Life) -> None:
        life.pass_s(1)
        assert life.board.read().alerts_s is None
        await life.keeper.begin()
        life.pass_s(1)
        said_s = life.board.read().alerts_s
        assert said_s is not None
        life.pass_s(100)
        assert (life.board.read().alerts, life.board.read().alerts_s) == ((), said_s)

    living(tmp_path, test)


def test_the_task_goes_on_while_the_disk_does_not_answer(tmp_path: Path) -> None:
    told = asyncio.Event()

    async def test(life: Life) -> None:
        life.keeper.found(grave(), NOW_S)
        running = asyncio.create_task(life.keeper.run())
        async with asyncio.timeout(20):
            await told.wait()
        assert len(life.firing) == 1
        assert not running.done()
        running.cancel()

    living(tmp_path / "nowhere", test, board=Board(Snapshot("0.1.0", NOW_S), changed=told.set))


def test_gpus_are_called_by_their_number_and_name(tmp_path: Path) -> None:
    async def test(life: Life) -> None:
        life.keeper.found(grave(gpu="GPU-1"), NOW_S)
        uuid = next(iter(full().gpus))
        life.keeper.found(found("graph", gpu=uuid), NOW_S)
        life.pass_s(1)
        (one,) = life.firing
        assert f"GPU 0 ({escaped(full().gpus[uuid].name)})" in one.description

    living(tmp_path, test, board=Board(full()))
