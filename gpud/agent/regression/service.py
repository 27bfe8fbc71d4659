"""Regression service: evaluates runs, and keeps the detectors' states in the history.

Runs are evaluated in the order in which the history gets them, so that a replay comes to the very
state that was lost. States are written now and then, with the number of the newest run they know;
a start evaluates the runs after it again, from the history. See docs/adr/0017.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gpud.agent.history import queries, records
from gpud.agent.history.queries import CONTEXTS, STREAM
from gpud.agent.history.records import State
from gpud.agent.history.store import WAITING_LIMIT
from gpud.agent.regression.commands import ALERT_ACKNOWLEDGED, EVERYTHING, Command
from gpud.agent.regression.judging import Judging
from gpud.agent.regression.replay import Replay
from gpud.agent.regression.streams import figures, measurable, named
from gpud.agent.state.status import with_streams
from gpud.core.errors import GpudError, StoreError
from gpud.core.health import Health, Level

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from gpud.agent.alerts.state import AlertState
    from gpud.agent.history.records import Run
    from gpud.agent.history.store import History
    from gpud.agent.regression.commands import Choice
    from gpud.agent.regression.detector import Parameters, Standing
    from gpud.agent.regression.judging import Decided, Settled, Taken
    from gpud.agent.regression.streams import Figures
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant
    from gpud.core.sample import StreamKey

RETRY_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
LOOK_S: Final = 2.0
"""How often it is checked whether states are due."""
READY_S: Final = 4.0
"""How long a decision waits for the past to be known."""
MOST_RUNS: Final = 1000
"""Runs that may have to be evaluated again after a kill: a second's work."""
LONGEST_S: Final = 6 * 3600.0
"""States that have changed are not older than this. Each writing is a megabyte or so."""
QUIET_S: Final = 7 * 86400.0
"""A stream without a sample for so long (its GPU is gone, its probe renamed) is not shown."""
HEALTH: Final = "detector"

log = structlog.get_logger()


@dataclass(slots=True)
class Unsaved:
    """What the history does not have yet: states that changed, alarms and verdicts."""

    streams: set[StreamKey] = field(default_factory=set)
    decided: list[Decided] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    runs: int = 0
    urgent: bool = False

    def add(self, taken: Taken) -> None:
        """Add what a run did."""
        self.streams.update(taken.keys)
        self.decided += taken.decided
        self.settled += taken.settled
        self.runs += 1
        self.urgent |= bool(taken.decided or taken.settled)


class Regression:
    """Evaluates runs. ``run`` is the task that does what need not be done at once.

    Whoever appends a run to the history and has it evaluated holds ``turn`` from one to the other:
    states are never written in between.
    """

    def __init__(
        self,
        history: History,
        alerts: AlertState,
        parameters: Parameters,
        *,
        board: Board,
        now: Callable[[], Instant],
    ) -> None:
        self.turn = asyncio.Lock()
        self._history = history
        self._alerts = alerts
        self._parameters = parameters
        self._board = board
        self._now = now
        self._judging = Judging(parameters)
        self._early: deque[Figures] = deque(maxlen=WAITING_LIMIT)  # came before the past was known
        self._ready = asyncio.Event()  # the past is known
        self._stirred = asyncio.Event()
        self._unsaved = Unsaved()
        self._saved_s = 0.0  # by the monotonic clock
        self._quiet: set[StreamKey] = set()
        self._retry_at_s = 0.0

    def evaluate(self, run: Run) -> None:
        """Evaluate a run that the history has, or holds in memory while it cannot be written."""
        measured = figures(run.report, run.finished_s, run.flags)
        if not self._ready.is_set():
            self._early.append(measured)
            return
        taken = self._judging.take(measured)
        self._add(taken)
        self._quiet.difference_update(taken.keys)
        for key, standing in self._publish(taken.keys).items():
            self._alerts.observe(key, standing, run.finished_s)

    async def run(self) -> None:
        """Restore what was known, then write states and end alerts; never ends."""
        while not self._ready.is_set():
            try:
                await self._restore()
            except StoreError:  # reported by the runs that cannot be written either
                await asyncio.sleep(RETRY_S)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), LOOK_S)
            self._stirred.clear()
            if self._now().mono_s >= self._retry_at_s:
                try:
                    await self.step()
                except StoreError:  # likewise
                    self._retry_at_s = self._now().mono_s + RETRY_S

    async def step(self) -> None:
        """Report new alarms, write states that are due, and hide and end what is gone."""
        await self._alerts.update()
        unsaved = self._unsaved
        old = unsaved.streams and self._now().mono_s - self._saved_s >= LONGEST_S
        if unsaved.urgent or unsaved.runs >= MOST_RUNS or old:
            await self.save()
        quiet = set(self._judging.gone(QUIET_S))
        gone, self._quiet = quiet - self._quiet, quiet
        self._publish((), gone)
        self._end_alerts_of_gone_streams()

    async def decide(
        self, kind: str, uid: int, choice: Choice = EVERYTHING, fingerprint: str | None = None
    ) -> None:
        """Write down what a person decided, and do it.

        Errors: ``GpudError`` while the past is still being read, ``StoreError``.
        """
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError as error:
            message = "gpud is still reading its history"
            raise GpudError(message, fix="try again in a minute") from error
        command = Command(0, self._now().wall_s, kind, 0, choice, fingerprint)
        async with self.turn:
            placed = await self._history.write(records.write_command, command, uid)
            self._obey(placed)
        with suppress(StoreError):  # it is done, and its alerts are written later
            await self._alerts.settle()
        self._stirred.set()

    async def ready(self) -> None:
        """Wait until the past is known."""
        await self._ready.wait()

    async def close(self) -> None:
        """Write the states, if that is possible."""
        if self._ready.is_set() and (self._unsaved.streams or self._unsaved.urgent):
            with suppress(StoreError):
                await self.save()

    async def save(self) -> None:
        """Write the states with the newest run, once no run is in memory only.

        Alerts come first: an alarm that is in the states is never raised again. Errors:
        ``StoreError``.
        """
        async with self.turn:
            await self._alerts.update()
            await self._alerts.settle()
            await self._history.append()
            await self._history.write(self._write)
            self._unsaved, self._saved_s = Unsaved(), self._now().mono_s

    def _write(self, transaction: sqlite3.Connection) -> None:
        """Write states, alarms and verdicts; all states where the file is a new one."""
        judging, unsaved = self._judging, self._unsaved
        same = queries.state(transaction, CONTEXTS) is not None
        upto = queries.newest_run(transaction)
        shared = msgspec.json.encode(judging.shared).decode()
        states = [State(CONTEXTS, upto, judging.shared.newest_s, shared)]
        for key in unsaved.streams if same else judging.streams:
            if stream := judging.streams.get(key):
                body = judging.encoded(key)
                states.append(State(f"{STREAM}{named(key)}", upto, stream.last_s, body))
        records.write_results(transaction, unsaved.decided, unsaved.settled)
        records.write_states(transaction, states)

    async def _restore(self) -> None:
        """Restore what was written, evaluate the runs since, and go on with those that come."""
        async with self.turn:  # runs that wait for the disk are known here only
            start = await self._history.read(queries.start)
            waiting = self._history.waiting
            self._early = deque(list(self._early)[len(self._early) - waiting :], WAITING_LIMIT)
        await self._alerts.load()
        replay = Replay(self._history, self._parameters, start)
        await replay.restore()
        self._judging, self._unsaved = replay.judging, Unsaved()
        with self._alerts.replaying():
            async for taken in replay.runs(self._obey):
                self._add(taken)
                with suppress(StoreError):  # raised, and not written yet
                    await self._alerts.update()  # before a command ends it
            async with self.turn:
                self._ready.set()
                for run in self._early:
                    self._add(self._judging.take(run))
                self._early.clear()
            with suppress(StoreError):
                await self._alerts.update()
            self._quiet = set(self._judging.gone(QUIET_S))
            for key, standing in self._publish(self._judging.streams).items():
                self._alerts.observe(key, standing, self._judging.shared.newest_s)
        self._saved_s = self._now().mono_s
        self._report_damage(replay.damaged)

    def _obey(self, command: Command) -> None:
        """Do what a person decided."""
        log.info("command", kind=command.kind, about=command.fingerprint or str(command.choice))
        keys: set[StreamKey] = set()
        if command.kind == ALERT_ACKNOWLEDGED:
            self._alerts.acknowledge(command.fingerprint or "", command.at_s)
        else:
            keys = self._judging.obey(command)
        for key in keys:
            self._alerts.forget(key, command.at_s)
        self._unsaved.streams |= keys
        self._unsaved.urgent = True
        self._judging.shared.heard = command.number
        if self._ready.is_set():
            self._publish(keys)

    def _add(self, taken: Taken) -> None:
        """Hand on what a run did."""
        self._unsaved.add(taken)
        self._alerts.add(taken.decided)
        for one in taken.decided:
            alarm = one.alarm
            log.info(
                "level_changed",
                stream=str(one.key),
                kind=alarm.kind,
                ratio=round(alarm.effect.ratio, 4),
                worse=alarm.worse,
                old=alarm.old_driver,
                new=alarm.new_driver,
            )
        if taken.decided or taken.settled:
            self._stirred.set()

    def _publish(
        self, keys: Iterable[StreamKey], gone: Iterable[StreamKey] = ()
    ) -> dict[StreamKey, Standing]:
        """Publish how streams stand, but for those that are not shown; return what is published."""
        standings = {key: self._judging.standing(key) for key in keys if key not in self._quiet}
        if standings or gone:
            units = {key: self._judging.streams[key].unit for key in standings}
            before = self._board.read().regression
            self._board.publish(regression=with_streams(before, standings, units, gone))
        return standings

    def _report_damage(self, damaged: dict[str, str]) -> None:
        if not damaged:
            return
        for name, why in damaged.items():
            log.warning("state_damaged", name=name, why=why)
        why = next(iter(damaged.values()))
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        detail = f"{why}{more}; learnt anew from the last days' runs"
        fix = "nothing has to be done; restart gpud to clear this"
        self._board.set_health(HEALTH, Health(Level.DEGRADED, "state_damaged", detail, fix))

    def _end_alerts_of_gone_streams(self) -> None:
        """End alerts of streams that cannot come back: no sample would ever end them.

        A machine that was off for weeks comes back with all of its streams; their alerts stay.
        """
        measure = self._board.read().measure
        shown = self._judging.streams.keys() - self._quiet
        for key in self._alerts.streams - shown:
            if not measurable(key, measure.specs, measure.inventory):
                log.info("stream_gone", stream=str(key))
                self._alerts.forget(key, self._now().wall_s)
