"""Everything between a finished run and the detectors' word.

Runs are judged in the order in which the history gets them, so that a replay finds the very state
that was lost. States are written now and then, with the newest run they know; what came after that
is taken in again at the next start, from the history. See docs/adr/0017.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from gpud.agent import pastruns, staterows
from gpud.agent.recall import QUIET_S, Recall
from gpud.agent.staterows import CONTEXTS, State, of_stream
from gpud.agent.store import WAITING_LIMIT
from gpud.core.errors import StoreError
from gpud.core.events import HealthSet, Judged
from gpud.core.health import Level
from gpud.core.judging import Judging
from gpud.core.streams import figures

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

    from gpud.agent.store import History, Run
    from gpud.core.clock import Instant
    from gpud.core.detector import Parameters
    from gpud.core.events import Event
    from gpud.core.judging import Decided, Settled, Taken
    from gpud.core.streams import Figures, StreamKey

AGAIN_S: Final = 5.0
"""How soon a history that could not be read or written is tried again."""
LOOK_S: Final = 2.0
"""How soon a command is heard."""
MOST_RUNS: Final = 1000
"""Runs that may have to be judged again after a kill: a second's work."""
LONGEST_S: Final = 6 * 3600.0
"""States that have changed are not older than this; each writing is a megabyte or so."""
HEALTH: Final = "detector"

log = structlog.get_logger()


class Judge:
    """Keeps runs and judges them. ``run`` is the task that does what need not be done at once."""

    def __init__(
        self,
        history: History,
        parameters: Parameters,
        *,
        publish: Callable[[Event], None],
        now: Callable[[], Instant],
    ) -> None:
        self._history = history
        self._parameters = parameters
        self._publish = publish
        self._now = now
        self._judging = Judging(parameters)
        self._past: Recall | None = None
        self._early: deque[Figures] = deque(maxlen=WAITING_LIMIT)  # came before the past was known
        self._live = asyncio.Event()  # the past is known
        self._turn = asyncio.Lock()  # a run is kept and judged, or states are written
        self._stirred = asyncio.Event()
        self._changed: set[StreamKey] = set()  # since the states were written
        self._decided: list[Decided] = []  # not written yet, as are the next
        self._settled: list[Settled] = []
        self._runs = 0  # judged since the states were written
        self._written_s = 0.0  # when they were, by the monotonic clock
        self._again_s = 0.0

    async def keep(self, run: Run) -> None:
        """Write a run into the history, and judge it.

        While nothing can be written it is judged all the same, as it waits in memory. Errors:
        ``StoreError``, as of ``History.append``.
        """
        taken = figures(run.report, run.finished_s, run.flags)
        async with self._turn:
            if self._live.is_set() and self._past is not None:
                with contextlib.suppress(StoreError):  # it is woken by its next run
                    await self._past.wake(taken)
            try:
                await self._history.append(run)
            finally:  # also where the caller is cancelled: the run is being written
                self._take(taken)

    async def run(self) -> None:
        """Learn what was known, then look after states and commands; never ends."""
        while not self._live.is_set():
            try:
                await self._begin()
            except StoreError:  # told by the runs that cannot be kept either
                await asyncio.sleep(AGAIN_S)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), LOOK_S)
            self._stirred.clear()
            await self._look_after()

    async def close(self) -> None:
        """Write what is known, if that is possible."""
        if self._live.is_set() and (self._changed or self._decided or self._settled):
            with contextlib.suppress(StoreError):
                await self._write()

    def _take(self, run: Figures) -> None:
        if not self._live.is_set():
            self._early.append(run)
            return
        self._told(self._judging.take(run))
        self._runs += 1

    def _told(self, taken: Taken) -> None:
        self._changed.update(taken.keys)
        self._decided += taken.decided
        self._settled += taken.settled
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
        if self._live.is_set():
            self._say(taken.keys)

    def _say(self, keys: Iterable[StreamKey], gone: Iterable[StreamKey] = ()) -> None:
        standings = {key: self._judging.standing(key) for key in keys}
        if standings or gone:
            units = {key: self._judging.streams[key].unit for key in standings}
            self._publish(Judged(standings, self._now().wall_s, units, tuple(gone)))

    async def _begin(self) -> None:
        """Restore what was written, take in what came after, and go on with what comes."""
        async with self._turn:  # what waits for the disk is known here only, the rest is in there
            start = await self._history.ask(lambda store: store.read(staterows.start))
            waiting = self._history.waiting
            self._early = deque(list(self._early)[len(self._early) - waiting :], WAITING_LIMIT)
        past = Recall(self._history, self._parameters, start)
        await past.restore()
        self._past, self._judging = past, past.judging
        async for taken in past.replayed():
            self._told(taken)
            self._runs += 1
        async with self._turn:
            self._live.set()
            for run in self._early:
                await past.wake(run)
                self._told(self._judging.take(run))
            self._early.clear()
        self._written_s = self._now().mono_s
        self._tell_health(past.damaged)
        self._say(self._judging.streams)

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
        now_s = self._now().mono_s
        due = (
            self._decided
            or self._settled
            or self._runs >= MOST_RUNS
            or (self._changed and now_s - self._written_s >= LONGEST_S)
        )
        if due and now_s >= self._again_s:
            try:
                await self._write()
            except StoreError:  # told by the runs, which cannot be kept either
                self._again_s = self._now().mono_s + AGAIN_S
        past = self._past
        if past is not None and (
            gone := [key for key in self._judging.gone(QUIET_S) if key not in self._changed]
        ):
            async with self._turn:
                for key in gone:
                    del self._judging.streams[key]
                past.resting.update(gone)
            self._say((), gone)

    async def _write(self) -> None:
        """Write the states with the newest run, once no run is in memory only."""
        async with self._turn:
            await self._history.append()
            changed, decided, settled = set(self._changed), self._decided[:], self._settled[:]
            states = {CONTEXTS: (self._judging.newest_s, self._judging.saved_contexts())}
            for key in changed:
                stream = self._judging.streams[key]
                states[of_stream(key)] = (stream.last_s, self._judging.saved_stream(key))
                await asyncio.sleep(0)  # each takes a millisecond or two

            def written(transaction: sqlite3.Connection) -> None:
                upto = pastruns.newest(transaction)
                staterows.tell(transaction, decided, settled)
                staterows.put(
                    transaction,
                    (
                        State(name, upto, at_s, staterows.encoded(body))
                        for name, (at_s, body) in states.items()
                    ),
                )

            await self._history.ask(lambda store: store.write(written))
            self._changed -= changed
            del self._decided[: len(decided)], self._settled[: len(settled)]
            self._runs, self._written_s = 0, self._now().mono_s
