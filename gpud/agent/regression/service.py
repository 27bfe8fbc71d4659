"""Regression service: evaluates runs, and stores the detectors' states in the history.

Runs are evaluated in the order in which the history gets them, so that a replay comes to the very
state that was lost. States are written now and then, with the number of the newest run they
contain; a start evaluates the runs after it again, from the history. See docs/adr/0017.
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
from gpud.agent.history.records import SavedState
from gpud.agent.history.store import WAITING_LIMIT
from gpud.agent.regression.commands import ALERT_ACKNOWLEDGED, Command
from gpud.agent.regression.evaluation import (
    Evaluator,
    SharedState,
    figures,
    stream_name,
)
from gpud.core.errors import GpudError, StoreError, WireError
from gpud.core.streams import EVERYTHING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Collection, Iterable

    from gpud.agent.alerts.state import AlertState
    from gpud.agent.history.queries import Start
    from gpud.agent.history.records import Run
    from gpud.agent.history.store import History
    from gpud.agent.regression.detector import Spans, StreamStanding
    from gpud.agent.regression.evaluation import FinalVerdict, Results, RunFigures, StreamAlarm
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant
    from gpud.core.streams import Choice, StreamKey

RETRY_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
LOOK_S: Final = 30.0
"""How often it is checked whether states are due, without an alarm or a command."""
READY_S: Final = 4.0
"""How long a decision waits for the history to be read."""
MOST_RUNS: Final = 1000
"""Runs that may have to be evaluated again after a kill: a second's work."""
LONGEST_S: Final = 6 * 3600.0
"""Changed states are written at least this often. Each writing is a megabyte or so."""
QUIET_S: Final = 7 * 86400.0
"""A stream without a sample for so long (its GPU is gone, its probe renamed) is not shown, and its
alert ends: no sample would."""
ROUNDS_S: Final = 3 * 3600.0
"""Of the agent's time, in which each stream that there is has a sample: all streams of a machine
that was off for weeks are without one at first."""
LEARN_S: Final = 3 * 86400.0
"""So far back are runs evaluated where no state is left: some 400 at one every ten minutes, and a
reference for each window."""
SLICE_RUNS: Final = 200
SLICE_S: Final = 0.002
"""Of the event loop's time at once, so that scrapes meanwhile do not wait."""

log = structlog.get_logger()


@dataclass(slots=True)
class Unsaved:
    """Results that the history does not have yet: states that changed, alarms and verdicts."""

    streams: set[StreamKey] = field(default_factory=set)
    alarms: list[StreamAlarm] = field(default_factory=list)
    verdicts: list[FinalVerdict] = field(default_factory=list)
    runs: int = 0
    urgent: bool = False

    def add(self, results: Results) -> None:
        """Add the results of a run."""
        self.streams.update(results.keys)
        self.alarms += results.alarms
        self.verdicts += results.verdicts
        self.runs += 1
        self.urgent |= bool(results.alarms or results.verdicts)


class Regression:
    """Evaluates runs, and gives the alarms that they raise to ``alerts``.

    ``run`` is the task that does what need not be done at once.

    Whoever appends a run to the history and has it evaluated holds ``turn`` from one to the other:
    states are never written in between.
    """

    def __init__(
        self,
        history: History,
        alerts: AlertState,
        spans: Spans,
        *,
        board: Board,
        now: Callable[[], Instant],
    ) -> None:
        self.turn = asyncio.Lock()
        self._history = history
        self._alerts = alerts
        self._spans = spans
        self._board = board
        self._now = now
        self._evaluator = Evaluator(spans)
        self._early: deque[RunFigures] = deque(maxlen=WAITING_LIMIT)  # before the past was read
        self._ready = asyncio.Event()  # the past is read
        self._wake = asyncio.Event()
        self._unsaved = Unsaved()
        self._saved_s = 0.0  # by the monotonic clock
        self._quiet: set[StreamKey] = set()
        self._started_s = now().mono_s

    def evaluate(self, run: Run) -> None:
        """Evaluate a run that the history has, or holds in memory while it cannot be written."""
        measured = figures(run.report, run.finished_s, run.flags)
        if not self._ready.is_set():
            self._early.append(measured)
            return
        results = self._evaluator.evaluate(measured)
        self._add(results)
        self._quiet.difference_update(results.keys)
        for key, standing in self._publish(results.keys).items():
            self._alerts.observe(key, standing, run.finished_s)

    async def run(self) -> None:
        """Restore what was written, then write states and end alerts; never ends."""
        while not self._ready.is_set():
            try:
                await self._restore()
            except StoreError:  # reported by the runs that cannot be written either
                await asyncio.sleep(RETRY_S)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_S)
            self._wake.clear()
            try:
                await self.step()
            except StoreError:  # likewise
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def step(self) -> None:
        """Report new alarms, write states that are due, and hide and end what is gone."""
        await self._alerts.update()
        unsaved = self._unsaved
        old = unsaved.streams and self._now().mono_s - self._saved_s >= LONGEST_S
        if unsaved.urgent or unsaved.runs >= MOST_RUNS or old:
            await self.save()
        quiet = self._evaluator.quiet(QUIET_S)
        gone, self._quiet = quiet - self._quiet, quiet
        self._publish((), gone)
        if self._now().mono_s - self._started_s >= ROUNDS_S:
            for key in self._alerts.streams & quiet:
                log.info("stream_gone", stream=str(key))
                self._alerts.forget(key, self._now().wall_s)

    async def decide(
        self, kind: str, uid: int, choice: Choice = EVERYTHING, fingerprint: str | None = None
    ) -> None:
        """Write a person's command into the history, and obey it.

        Errors: ``GpudError`` while the past is still being read, ``StoreError``.
        """
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError as error:
            message = "gpud is still reading its history"
            raise GpudError(message, fix="try again in a minute") from error
        command = Command(0, self._now().wall_s, kind, 0, choice, fingerprint)
        async with self.turn:
            self._obey(await self._history.write(records.write_command, command, uid))
        with suppress(StoreError):  # it is done, and its alerts are written later
            await self._alerts.publish_and_write()
        self._wake.set()

    async def ready(self) -> None:
        """Wait until the past is read."""
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
            await self._alerts.publish_and_write()
            await self._history.append()
            await self._history.write(self._write)
            self._unsaved, self._saved_s = Unsaved(), self._now().mono_s

    def _write(self, transaction: sqlite3.Connection) -> None:
        """Write states, alarms and verdicts; all states where the file is a new one."""
        evaluator, unsaved = self._evaluator, self._unsaved
        same = queries.state(transaction, CONTEXTS) is not None
        upto = queries.newest_run(transaction)
        shared = msgspec.json.encode(evaluator.shared).decode()
        states = [SavedState(CONTEXTS, upto, evaluator.shared.newest_s, shared)]
        for key in unsaved.streams if same else evaluator.streams:
            if stream := evaluator.streams.get(key):
                body = evaluator.encoded(key)
                states.append(SavedState(f"{STREAM}{stream_name(key)}", upto, stream.last_s, body))
        records.write_results(transaction, unsaved.alarms, unsaved.verdicts)
        records.write_states(transaction, states)

    async def _restore(self) -> None:
        """Restore what was written, evaluate the runs since, and go on with those that come."""
        async with self.turn:  # runs that wait for the disk are in memory only
            start = await self._history.read(queries.start)
            waiting = self._history.waiting
            self._early = deque(list(self._early)[len(self._early) - waiting :], WAITING_LIMIT)
        await self._alerts.load()
        replay = Replay(self._history, self._spans, start)
        await replay.restore()
        self._evaluator, self._unsaved = replay.evaluator, Unsaved(replay.damaged)
        with self._alerts.replaying():
            async for results in replay.runs(self._obey):
                self._add(results)
                with suppress(StoreError):  # raised, and not written yet
                    await self._alerts.update()  # before a command ends it
            async with self.turn:
                self._ready.set()
                for run in self._early:
                    self._add(self._evaluator.evaluate(run))
                self._early.clear()
            with suppress(StoreError):
                await self._alerts.update()
            self._quiet = self._evaluator.quiet(QUIET_S)
            for key, standing in self._publish(self._evaluator.streams).items():
                self._alerts.observe(key, standing, self._evaluator.shared.newest_s)
        self._saved_s = self._now().mono_s

    def _obey(self, command: Command) -> None:
        """Obey a person's command."""
        log.info("command", kind=command.kind, about=command.fingerprint or str(command.choice))
        if command.kind == ALERT_ACKNOWLEDGED:
            self._alerts.acknowledge(command.fingerprint or "", command.at_s)
        keys = self._evaluator.obey(command)
        for key in keys:
            self._alerts.forget(key, command.at_s)
        self._unsaved.streams |= keys
        self._unsaved.urgent = True
        self._evaluator.shared.obeyed = command.number
        if self._ready.is_set():
            self._publish(keys)

    def _add(self, results: Results) -> None:
        """Give the alarms of a run to the alerts, and keep its results until they are written."""
        self._unsaved.add(results)
        self._alerts.add(results.alarms)
        for raised in results.alarms:
            alarm = raised.alarm
            log.info(
                "level_changed",
                stream=str(raised.key),
                kind=alarm.kind,
                ratio=round(alarm.effect.ratio, 4),
                worse=alarm.worse,
                old=alarm.old_driver,
                new=alarm.new_driver,
            )
        if results.alarms or results.verdicts:
            self._wake.set()

    def _publish(
        self, keys: Iterable[StreamKey], gone: Collection[StreamKey] = ()
    ) -> dict[StreamKey, StreamStanding]:
        """Publish how streams stand, except hidden ones; return what is published."""
        standings = {key: self._evaluator.standing(key) for key in keys if key not in self._quiet}
        if standings or gone:
            before = self._board.read().streams.items()
            kept = {key: standing for key, standing in before if key not in gone}
            self._board.publish(streams={**kept, **standings})
        return standings


class Replay:
    """One start: ``restore``, then ``runs``; the state of all streams is in ``evaluator``."""

    def __init__(self, history: History, spans: Spans, start: Start) -> None:
        self._first_seq = {key: last.seq + 1 for key, last in start.alarms.items()}
        self.evaluator = Evaluator(spans, first_seq=self._first_seq)
        self._history = history
        self._start = start
        self._upto = 0  # the newest run that the states contain
        self._stateless = True
        self.damaged: set[StreamKey] = set()

    async def restore(self) -> None:
        """Read the states, and learn the streams again whose state is damaged.

        Without what all streams share, ``runs`` learns all of them. Errors: ``StoreError``.
        """
        start, contexts = self._start, self._start.contexts
        if contexts is None:
            return
        try:
            self.evaluator.shared = msgspec.json.decode(contexts.body, type=SharedState)
        except msgspec.MsgspecError as error:
            log.warning("state_damaged", why=str(error))
            return
        self._stateless = False
        if contexts.upto_run <= start.newest_run:  # else numbers of runs began again
            self._upto = contexts.upto_run
        for key in start.streams:
            state = await self._history.read(queries.state, f"{STREAM}{stream_name(key)}")
            try:
                self.evaluator.restore(key, "" if state is None else state.body)
            except WireError as error:
                log.warning("state_damaged", why=str(error))
                self.damaged.add(key)
        if self.damaged:
            await self._learn()

    async def _learn(self) -> None:
        """Evaluate the last days of the damaged streams; their alarms were raised before."""
        shared = self.evaluator.shared
        learner = Evaluator(self.evaluator.spans, shared, first_seq=self._first_seq)
        after = await self._history.read(queries.first_run_within, self._upto, LEARN_S)
        past = await self._history.read(queries.person_commands, 0)
        commands = deque(command for command in past if command.number <= shared.obeyed)
        async for _ in self._replay(learner, after, self._upto, commands, learner.obey):
            pass
        learnt = self.damaged & learner.streams.keys()
        self.evaluator.streams |= {key: learner.streams[key] for key in learnt}

    async def runs(self, obey: Callable[[Command], None]) -> AsyncIterator[Results]:
        """Evaluate the runs that the states do not contain; yield the results of each.

        Without states the runs of the last days are, and what was raised before is not raised
        again. ``obey`` is called with people's commands, each at its place among the runs. Errors:
        ``StoreError``.
        """
        newest, after = self._start.newest_run, self._upto
        if self._stateless:
            after = await self._history.read(queries.first_run_within, newest, LEARN_S)
        obeyed = self.evaluator.shared.obeyed
        commands = deque(await self._history.read(queries.person_commands, obeyed))
        async for results in self._replay(self.evaluator, after, newest, commands, obey):
            if self._stateless:
                self._drop_raised(results)
            yield results

    async def _replay(
        self,
        evaluator: Evaluator,
        after: int,
        upto: int,
        commands: deque[Command],
        obey: Callable[[Command], object],
    ) -> AsyncIterator[Results]:
        """Evaluate good runs in slices, with commands in between; the event loop runs meanwhile."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        while after < upto:
            runs, after = await self._history.read(queries.good_runs, after, upto, SLICE_RUNS)
            for run in runs:
                while commands and commands[0].after_run < run.number:
                    obey(commands.popleft())
                yield evaluator.evaluate(run.figures)
                if clock() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = clock()
        for command in commands:
            obey(command)

    def _drop_raised(self, results: Results) -> None:
        """Drop the alarms that were raised before the states were lost."""
        raised = self._start.alarms
        results.alarms[:] = [
            alarm
            for alarm in results.alarms
            if alarm.key not in raised or alarm.alarm.at_s > raised[alarm.key].at_s
        ]
