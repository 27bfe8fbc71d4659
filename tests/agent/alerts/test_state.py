"""The alert state over a real history: what is published, written, and there after a restart."""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.state import SHOWN_ENDED_S, AlertState, within
from gpud.agent.history.schema import FILE
from gpud.agent.history.store import History
from gpud.agent.regression.evaluation import StreamAlarm
from gpud.agent.state.board import Board
from gpud.core.alerts import Alert, Severity
from gpud.core.clock import Instant
from gpud.core.errors import StoreError
from gpud.core.health import Level
from tests.agent.alerts.alarms import NOW_S, alarm, finding, grave
from tests.events import health_set, made, post

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gpud.agent.alerts.slowdowns import AlarmFinding
    from gpud.document.alerts import AlertReport


@dataclass
class Life:
    """One run of an agent, with a clock that is moved by hand."""

    history: History
    mono_s: float = 500.0
    board: Board = field(default_factory=lambda: Board(made("0.1.0", NOW_S)))

    def __post_init__(self) -> None:
        self.state = AlertState(self.history, board=self.board, now=self.now)

    def now(self) -> Instant:
        return Instant(NOW_S + self.mono_s, self.mono_s)

    async def alarm(self, *findings: AlarmFinding) -> None:
        """Let the detector raise alarms."""
        self.state.add(
            StreamAlarm(item.key, item.unit, item.alarm, item.judged, item.changed)
            for item in findings
        )
        await self.state.update()

    def health(self, level: Level, component: str = "http") -> None:
        now_s = self.now().wall_s
        post(self.board, health_set(component, level, now_s, reason="x", detail="down", fix="up"))

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.mono_s += 1
            self.state.step()

    @property
    def published(self) -> tuple[Alert, ...]:
        return self.board.read().alerts.alerts

    @property
    def firing(self) -> list[Alert]:
        return [alert for alert in self.published if alert.firing]

    async def rows(self) -> list[AlertReport]:
        return await self.history.read(within, 0.0)


@contextlib.asynccontextmanager
async def living(
    folder: Path, *, loaded: bool = True, mono_s: float = 500.0
) -> AsyncIterator[Life]:
    """Let an agent live."""
    history = History(folder)
    agent = Life(history, mono_s)
    try:
        if loaded:
            await agent.state.load()
        yield agent
    finally:
        await history.close()


async def test_alarm_is_published_and_written_and_there_after_a_restart(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        await life.alarm(grave())
        life.state.acknowledge(life.firing[0].fingerprint, NOW_S + 1)
        life.state.acknowledge(life.firing[0].fingerprint, NOW_S + 9)
        await life.state.publish_and_write()
        (row,) = await life.rows()
        (alert,) = life.firing
        assert (row.fingerprint, row.summary) == (alert.fingerprint, alert.summary)
        assert row.evidence[0].slowdown == pytest.approx(1.6)
    async with living(tmp_path) as life:
        assert life.firing == []
        await life.state.publish_and_write()
        (alert,) = life.firing
        assert alert.acknowledged_s == NOW_S + 1
        await life.alarm(grave())  # as a replay does
        assert life.firing == [alert]
        await life.alarm(finding("graph"))  # it joins the alert, which stays acknowledged
        assert [joined.acknowledged_s for joined in life.firing] == [NOW_S + 1]
        for mode in ("submit", "graph"):
            life.state.forget(finding(mode).key, NOW_S + 901)
        await life.state.close()
        (row,) = await life.rows()
        assert (row.ends_s, row.firing, life.firing) == (NOW_S + 901, False, [])
        assert (len(life.published), len(life.published[0].evidence)) == (1, 2)
    async with living(tmp_path) as life:
        await life.state.publish_and_write()
        assert len(life.published) == 1
        life.mono_s += SHOWN_ENDED_S + 500
        life.pass_s(1)
        assert not life.published


async def test_alarm_that_a_kill_lost_is_published_once_and_only_after_the_replay(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as life:
        await life.alarm(grave())
        assert len(life.firing) == 1
    async with living(tmp_path) as life:
        with life.state.replaying():
            await life.alarm(grave(), finding("graph", alarm(seq=9)))
            life.state.step()
            assert life.firing == []
            life.state.forget(finding("graph").key, NOW_S + 5)
        await life.state.publish_and_write()
        assert [row.stream.mode for row in life.firing[0].evidence] == ["submit"]
        assert len(await life.rows()) == 1


async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        await life.alarm(grave())
        with closing(sqlite3.connect(tmp_path / FILE)) as other:
            before = other.execute("PRAGMA data_version").fetchone()
            for _ in range(50):
                life.pass_s(10)
                await life.alarm(grave())
            assert other.execute("PRAGMA data_version").fetchone() == before
            life.state.forget(grave().key, NOW_S)
            await life.state.publish_and_write()
            assert other.execute("PRAGMA data_version").fetchone() != before


async def test_failed_component_is_an_alert_and_a_restart_does_not_end_it(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.health(Level.FAILED)
        life.pass_s(119)
        assert life.firing == []
        life.pass_s(2)
        (alert,) = life.firing
        labels = {"component": "http"}
        assert (alert.name, alert.labels, alert.fix) == ("GpudUnwell", labels, "up")
        await life.state.close()
    (copied := tmp_path / "copied").mkdir()
    (copied / FILE).write_bytes((tmp_path / FILE).read_bytes())
    async with living(tmp_path) as life:
        life.pass_s(30)  # nothing is known of http yet
        assert len(life.firing) == 1
        life.health(Level.FAILED)
        life.pass_s(30)
        assert len(life.firing) == 1
        life.health(Level.OK)
        life.pass_s(1)
        assert life.firing == []
    async with living(copied) as life:
        life.pass_s(5)
        assert len(life.firing) == 1
        life.pass_s(1500)
        assert life.firing == []  # a component that there is no more


async def test_without_a_readable_history_alerts_are_published_and_joined_later(
    tmp_path: Path,
) -> None:
    folder, aside = tmp_path / "state", tmp_path / "aside"
    folder.mkdir()
    async with living(folder) as life:
        for component in ("store", "alerts"):
            life.health(Level.FAILED, component)
        life.pass_s(130)
        (store,) = (a for a in life.firing if a.labels == {"component": "store"})
        life.state.acknowledge(store.fingerprint, NOW_S)
        life.health(Level.OK, "alerts")
        life.pass_s(1)
        await life.alarm(grave())
    folder.rename(aside)
    async with living(folder, loaded=False, mono_s=700.0) as life:
        with pytest.raises(StoreError):
            await life.state.load()
        for component in ("store", "http", "alerts"):
            life.health(Level.FAILED, component)
        life.pass_s(130)
        assert [alert.acknowledged_s for alert in life.firing] == [None, None, None]
        aside.rename(folder)
        await life.state.load()
        await life.state.publish_and_write()
        assert len(life.firing) == 4  # what ended before does not hide what fires again
        assert len(await life.rows()) == 5
        assert life.firing[-1].acknowledged_s == NOW_S


@pytest.mark.parametrize("body", ["[1", "{}", '{"version": 2, "cases": []}', '{"cases": [{}]}'])
async def test_damaged_state_is_begun_again_and_its_alerts_are_over(
    tmp_path: Path, body: str
) -> None:
    async with living(tmp_path) as life:
        await life.alarm(grave())
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE states SET body = ? WHERE name = 'ledger'", (body,))
    async with living(tmp_path) as life:
        await life.state.publish_and_write()
        assert life.firing == []
        (row,) = await life.rows()
        assert (row.firing, row.ends_s, row.updated_s) == (False, NOW_S + 500.0, NOW_S + 500.0)
        assert row.summary.startswith("submission")


async def test_history_that_was_begun_again_gets_all_that_fires(tmp_path: Path) -> None:
    def damage() -> None:
        for file in tmp_path.glob(f"{FILE}*"):
            file.write_bytes(b"no database")

    async with living(tmp_path) as life:
        await life.alarm(grave())
        damage()
        await life.history.append()  # as the next run does
        await life.state.publish_and_write()
        assert len(await life.rows()) == 1
    async with living(tmp_path) as life:
        await life.state.publish_and_write()
        assert len(life.firing) == 1


def condition(
    words: str, at_s: float, severity: Severity = Severity.WARNING, label: str = "store"
) -> Alert:
    return Alert("GpudX", severity, {"component": label}, words, words, at_s, at_s)


async def test_condition_begins_once_and_changes_its_words_now_and_then(tmp_path: Path) -> None:
    async with living(tmp_path) as life:

        async def after(*alerts: Alert, keep: tuple[str, ...] = ()) -> list[Alert]:
            life.state.sync({"GpudX"}, alerts, NOW_S + 70, keep=keep)
            await life.state.publish_and_write()
            return life.firing

        first = await after(condition("3 runs wait", NOW_S))
        assert await after(condition("4 runs wait", NOW_S + 1)) == first
        (graver,) = await after(condition("4 runs", NOW_S + 1, Severity.CRITICAL))
        assert (graver.severity, graver.starts_s) == (Severity.CRITICAL, NOW_S)
        (later,) = await after(condition("90 runs", NOW_S + 62, Severity.CRITICAL))
        assert (later.summary, later.starts_s) == ("90 runs", NOW_S)
        assert await after(keep=("store",)) == [later]
        assert await after() == []
        assert [alert.ends_s for alert in life.published] == [NOW_S + 70]
        again = await after(condition("again", NOW_S - 90))  # by a clock that was set back
        assert [alert.starts_s for alert in again] == [NOW_S - 90]
        assert len(await life.rows()) == 2


async def test_first_alert_is_the_gravest_that_is_not_acknowledged(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        mild, bad = condition("a", 0.0, label="a"), condition("b", 0.0, Severity.CRITICAL, "b")
        life.state.sync({"GpudX"}, [mild, bad], 0.0)
        await life.state.publish_and_write()
        assert life.published == (bad, mild)
        life.state.acknowledge(bad.fingerprint, NOW_S)
        await life.state.publish_and_write()
        assert [alert.summary for alert in life.published] == ["a", "b"]
