"""Everything between a finished run and the detectors' word.

Runs are judged in the order in which the history gets them, so that a replay finds the very state
that was lost. States are written now and then, with the newest run they know; what came after that
is taken in again at the next start, from the history. See docs/adr/0017.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from gpud.agent import eventrows, staterows
from gpud.agent.checkpoint import Checkpoint
from gpud.agent.recall import QUIET_S, Recall
from gpud.agent.store import WAITING_LIMIT
from gpud.core.commands import ALERT_ACKNOWLEDGED, EVERYTHING, Command
from gpud.core.errors import GpudError, StoreError
from gpud.core.events import HealthSet, Judged
from gpud.core.health import Level
from gpud.core.judging import Judging
from gpud.core.streams import figures, measurable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpud.agent.alerts.state import AlertState
    from gpud.agent.store import History, Run
    from gpud.core.clock import Instant
    from gpud.core.commands import Choice
    from gpud.core.detector import Parameters, Standing
    from gpud.core.events import Event
    from gpud.core.judging import Taken
    from gpud.core.snapshot import Snapshot
    from gpud.core.streams import Figures, StreamKey

AGAIN_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
LOOK_S: Final = 2.0
"""How often states are looked after."""
BEGUN_S: Final = 4.0
"""How long a decision waits for the past to be known."""
HEALTH: Final = "detector"

log = structlog.get_logger()


class Judge:
    """Keeps runs and judges them. ``run`` is the task that does what need not be done at once."""

    def __init__(  # noqa: PLR0913  # the parts it joins, the last ones passed by name
        self,
        history: History,
        alerts: AlertState,
        parameters: Parameters,
        *,
        read: Callable[[], Snapshot],
        publish: Callable[[Event], None],
        now: Callable[[], Instant],
    ) -> None:
        self._history = history
        self._alerts = alerts
        self._parameters = parameters
        self._publish = publish
        self._now = now
        self._read = read
        self._checkpoint = Checkpoint(history)
        self._judging = Judging(parameters)
        self._past: Recall | None = None
        self._early: deque[Figures] = deque(maxlen=WAITING_LIMIT)  # came before the past was known
        self._live = asyncio.Event()  # the past is known
        self._turn = asyncio.Lock()  # a run is kept and judged, or states are written
        self._stirred = asyncio.Event()
        self._heard = 0  # the last command
        self._again_s = 0.0

    async def keep(self, run: Run) -> None:
        """Write a run into the history, and judge it.

        While nothing can be written it is judged all the same, as it waits in memory. Errors:
        ``StoreError``, as of ``History.append``.
        """
        taken = figures(run.report, run.finished_s, run.flags)
        async with self._turn:
            if self._live.is_set() and self._past is not None:
                with suppress(StoreError):  # streams of it that rest are woken by its next run
                    await self._past.wake(taken)
            try:
                await self._history.append(run)
            finally:  # also where the caller is cancelled: the run is being written
                self._take(taken)

    async def run(self) -> None:
        """Learn what was known, then look after states; never ends."""
        while not self._live.is_set():
            try:
                await self._begin()
            except StoreError:  # told by the runs that cannot be kept either
                await asyncio.sleep(AGAIN_S)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), LOOK_S)
            self._stirred.clear()
            if self._now().mono_s >= self._again_s:
                try:
                    await self._look_after()
                except StoreError:  # likewise
                    self._again_s = self._now().mono_s + AGAIN_S

    async def decide(
        self, kind: str, uid: int, choice: Choice = EVERYTHING, fingerprint: str | None = None
    ) -> None:
        """Write down what a person decided, and do it.

        Errors: ``GpudError`` while the past is still being read, ``StoreError``.
        """
        try:
            await asyncio.wait_for(self._live.wait(), BEGUN_S)
        except TimeoutError as error:
            message = "gpud is still reading its history"
            raise GpudError(message, fix="try again in a minute") from error
        command = Command(0, self._now().wall_s, kind, 0, choice, fingerprint)
        async with self._turn:
            placed = await self._history.ask(
                lambda store: store.write(lambda rows: eventrows.decide(rows, command, uid))
            )
            await self._obey(placed)
        with suppress(StoreError):  # it is done, and its alerts are written later
            await self._alerts.settle()
        self._stirred.set()

    async def begun(self) -> None:
        """Wait until the past is known."""
        await self._live.wait()

    async def close(self) -> None:
        """Write what is known, if that is possible."""
        if self._live.is_set() and self._checkpoint.behind:
            with suppress(StoreError):
                await self._write()

    def _take(self, run: Figures) -> None:
        if not self._live.is_set():
            self._early.append(run)
            return
        taken = self._judging.take(run)
        self._told(taken)
        standings = self._say(taken.keys)
        for key, standing in standings.items():
            self._alerts.observe(key, standing, run.finished_s)

    def _told(self, taken: Taken) -> None:
        self._checkpoint.note(taken)
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

    def _say(
        self, keys: Iterable[StreamKey], gone: Iterable[StreamKey] = ()
    ) -> dict[StreamKey, Standing]:
        standings = {key: self._judging.standing(key) for key in keys}
        if standings or gone:
            units = {key: self._judging.streams[key].unit for key in standings}
            self._publish(Judged(standings, self._now().wall_s, units, tuple(gone)))
        return standings

    async def _begin(self) -> None:
        """Restore what was written, take in what came after, and go on with what comes."""
        async with self._turn:  # what waits for the disk is known here only, the rest is in there
            start = await self._history.ask(lambda store: store.read(staterows.start))
            waiting = self._history.waiting
            self._early = deque(list(self._early)[len(self._early) - waiting :], WAITING_LIMIT)
        with suppress(StoreError):  # what is told meanwhile joins what was known
            await self._alerts.load()
        past = Recall(self._history, self._parameters, start)
        await past.restore()
        self._past, self._judging, self._heard = past, past.judging, past.heard
        with self._alerts.replaying():
            async for taken in past.replayed(self._obey):
                self._told(taken)
                with suppress(StoreError):  # told, and not written yet
                    await self._alerts.update(self._judging)  # before a command has its say
            async with self._turn:
                self._live.set()
                for run in self._early:
                    await past.wake(run)
                    self._told(self._judging.take(run))
                self._early.clear()
            with suppress(StoreError):
                await self._alerts.update(self._judging)
            for key, standing in self._say(self._judging.streams).items():
                self._alerts.observe(key, standing, self._judging.shared.newest_s)
        self._checkpoint.begun(self._now().mono_s)
        self._tell_health(past.damaged)

    async def _obey(self, command: Command) -> None:
        """Do what a person said. Errors: ``StoreError``; then it is said again."""
        log.info("command", kind=command.kind, about=command.fingerprint or str(command.choice))
        keys: set[StreamKey] = set()
        if command.kind == ALERT_ACKNOWLEDGED:
            self._alerts.acknowledge(command.fingerprint or "", command.at_s)
        elif self._past is not None:
            await self._past.wake_chosen(command.choice)
            keys = self._judging.obey(command)
        for key in keys:
            self._alerts.forget(key, command.at_s)
        self._checkpoint.changed.update(keys)
        self._checkpoint.hurry()
        self._heard = command.number
        if self._live.is_set():
            self._say(keys)

    def _tell_health(self, damaged: dict[str, str]) -> None:
        if not damaged:
            return
        for name, why in damaged.items():
            log.warning("state_set_aside", name=name, why=why)
        name, why = next(iter(damaged.items()))
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        self._publish(
            HealthSet(
                HEALTH,
                Level.DEGRADED,
                self._now().wall_s,
                reason="state_set_aside",
                detail=f"{why}{more}; learnt anew from the last days' runs",
                fix="nothing has to be done; restart gpud to clear this",
            )
        )

    async def _look_after(self) -> None:
        """Tell what was found, write what is due, and let rest what is gone."""
        await self._alerts.update(self._judging)
        if self._checkpoint.due(self._now().mono_s):
            await self._write()
        changed = self._checkpoint.changed
        gone = [key for key in self._judging.gone(QUIET_S) if key not in changed]
        if gone and self._past is not None:
            async with self._turn:
                for key in gone:
                    del self._judging.streams[key]
                self._past.resting.update(gone)
            self._say((), gone)
        self._end_what_nobody_measures()

    def _end_what_nobody_measures(self) -> None:
        """End alerts of streams that rest and cannot come back: nothing else would ever do so.

        A machine that was off for weeks comes back with all of its streams; these stay told.
        """
        snapshot = self._read()
        for key in self._alerts.streams - self._judging.streams.keys():
            if not measurable(key, snapshot):
                log.info("stream_gone", stream=str(key))
                self._alerts.forget(key, self._now().wall_s)

    async def _write(self) -> None:
        """Write the states with the newest run, once no run is in memory only.

        The alerts come first: an alarm that is in the states is never found again.
        """
        async with self._turn:
            await self._alerts.update(self._judging)
            await self._alerts.settle()
            await self._history.append()
            await self._checkpoint.write(self._judging, self._heard, self._now().mono_s)
