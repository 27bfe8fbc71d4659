"""A history that is damaged, or gone, at the start and while it runs: set aside, and begun anew."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries, retention
from gpud.agent.history.schema import FILE
from gpud.agent.history.store import History
from gpud.core.sections import StoreSettings
from tests.agent.history.test_store import finished_s, run
from tests.histories import opened

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("damage", ["not a database", "a page overwritten"])
def test_a_corrupt_file_is_set_aside_whole_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    if damage == "not a database":
        (tmp_path / FILE).write_bytes(b"this was never a database" * 500)
    else:
        with opened(tmp_path) as store:
            store.append([run(number) for number in range(500)])
        with (tmp_path / FILE).open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(4096 * 4))
    spoiled = (tmp_path / FILE).read_bytes()
    with opened(tmp_path) as store:
        assert store.set_aside is not None
        assert store.set_aside.match(f"{FILE}.corrupt-2*Z")
        assert store.set_aside.read_bytes() == spoiled
        store.append([run(1)])
        assert store.read(queries.run_count) == 1


def spoil(path: Path, from_end: int | None = None) -> None:
    """Overwrite the end, or all but the first pages, as a disk does that is at its end."""
    size = path.stat().st_size
    n = size - 8192 if from_end is None else from_end
    with path.open("r+b") as file:
        file.seek(size - n)
        file.write(os.urandom(n))


def test_damage_that_shows_while_it_runs_sets_the_file_aside_and_loses_no_run_in_flight(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        history = History(tmp_path)
        await history.append(*(run(number) for number in range(500)))
        await history.ask(lambda s: s.read(lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        await history.ask(lambda s: s.read(lambda c: c.execute("PRAGMA shrink_memory")))
        spoil(tmp_path / FILE)
        await history.append(run(1000))
        assert history.set_aside is not None
        assert history.set_aside.exists()
        assert (history.waiting, history.dropped) == (0, 0)
        await history.append(run(1001))
        await history.close()

    asyncio.run(story())
    assert finished_s(tmp_path) == [1000.0, 1001.0]


def test_damage_where_nobody_reads_is_found_by_the_hourly_look(tmp_path: Path) -> None:
    async def story() -> None:
        history = History(tmp_path)
        await history.append(*(run(number) for number in range(50)))
        large = [(f"state {number}", 0, 0.0, "x" * 100_000) for number in range(9)]
        put = "INSERT INTO states VALUES (?, ?, ?, ?)"
        await history.ask(lambda s: s.write(lambda c: c.executemany(put, large).rowcount))
        await history.ask(lambda s: s.read(lambda c: c.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        await history.ask(lambda s: s.read(lambda c: c.execute("PRAGMA shrink_memory")))
        await retention.keep(history, StoreSettings(), rest_s=0.0)
        sound = history.set_aside
        spoil(tmp_path / FILE, from_end=400_000)
        await retention.keep(history, StoreSettings(), rest_s=0.0)
        assert sound is None
        assert history.set_aside is not None
        await history.append(run(1001))
        assert await history.ask(lambda store: store.read(queries.run_count)) == 1
        await history.close()

    asyncio.run(story())


@pytest.mark.parametrize("how", ["deleted", "with its WAL", "another in its place"])
def test_a_file_that_is_taken_away_while_it_runs_is_begun_anew(tmp_path: Path, how: str) -> None:
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other") as store:
        store.append([run(7)])

    def take_away() -> None:
        if how == "another in its place":
            (tmp_path / "other" / FILE).rename(tmp_path / FILE)
        else:
            for path in tmp_path.glob(f"{FILE}*" if how == "with its WAL" else FILE):
                path.unlink()

    async def story() -> None:
        history = History(tmp_path)
        await history.append(run(0))
        take_away()
        await history.append(run(1))
        await history.append(run(2))
        await history.close()

    asyncio.run(story())
    assert finished_s(tmp_path) == ([7.0] if "place" in how else []) + [1.0, 2.0]


def test_a_second_corrupt_file_never_overwrites_the_first(tmp_path: Path) -> None:
    kept = set()
    for text in (b"first" * 1000, b"second" * 1000):
        (tmp_path / FILE).unlink(missing_ok=True)
        (tmp_path / FILE).write_bytes(text)
        with opened(tmp_path) as store:
            assert store.set_aside is not None
            kept.add(store.set_aside)
    assert len(kept) == 2
    assert all(path.exists() for path in kept)
