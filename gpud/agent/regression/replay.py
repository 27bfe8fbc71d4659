"""Restoration at a start: the states that were written, and the runs that they do not know."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent.history import queries
from gpud.agent.history.queries import CONTEXTS, STREAM
from gpud.agent.regression.judging import Judging, SharedState
from gpud.agent.regression.streams import named
from gpud.core.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gpud.agent.history.queries import PastRun, Start
    from gpud.agent.history.store import History
    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.detector import Parameters
    from gpud.agent.regression.judging import Taken
    from gpud.core.sample import StreamKey

LEARN_S: Final = 3 * 86400.0
"""So far back are runs evaluated where no state is left: a reference is of 17 hours."""
SLICE_RUNS: Final = 200
SLICE_S: Final = 0.002
"""Of the event loop's time at once, so that scrapes meanwhile do not wait."""


class Replay:
    """One start. ``damaged`` says of each state that could not be read why, by its name."""

    def __init__(self, history: History, parameters: Parameters, start: Start) -> None:
        self._history = history
        self._start = start
        self.judging = Judging(
            parameters, first_seq={key: last.seq + 1 for key, last in start.alarms.items()}
        )
        self.damaged: dict[str, str] = {}
        self._upto = 0  # the newest run that the states know
        self._lost: set[StreamKey] = set()  # streams whose state could not be read

    async def restore(self) -> None:
        """Read the states. Without the contexts none is of use. Errors: ``StoreError``."""
        contexts = self._start.contexts
        if contexts is None:
            if self._start.streams:
                self.damaged[CONTEXTS] = "the contexts of the states are lost"
            return
        try:
            self.judging.shared = msgspec.json.decode(contexts.body, type=SharedState)
        except msgspec.MsgspecError as error:
            self.damaged[CONTEXTS] = f"damaged state: {CONTEXTS}: {error}"
            return
        if contexts.upto_run <= self._start.newest_run:  # else numbers of runs began anew
            self._upto = contexts.upto_run
        for key in self._start.streams:
            await self._restore(key)

    async def _restore(self, key: StreamKey) -> None:
        name = f"{STREAM}{named(key)}"
        state = await self._history.read(queries.state, name)
        try:
            self.judging.restore(key, "" if state is None else state.body)
        except WireError as error:
            self.damaged[name] = f"damaged state: {error}"
            self._lost.add(key)

    async def runs(self, obey: Callable[[Command], None]) -> AsyncIterator[Taken]:
        """Evaluate the runs that the states do not know; yield what each did.

        Streams whose state is lost learn from the runs of the last days, and what they had raised
        before is not raised again. ``obey`` is called with what a person decided, at its place
        among the runs. Errors: ``StoreError``.
        """
        newest, heard = self._start.newest_run, self.judging.shared.heard
        stateless = self._start.contexts is None or CONTEXTS in self.damaged
        after = self._upto
        if stateless or self._lost:
            after = await self._first_of_last_days(newest if stateless else self._upto)
        commands = deque(await self._commands(0 if self._lost else heard))
        began_s = asyncio.get_running_loop().time()
        while after < newest:
            runs, after = await self._slice(after, newest)
            for run in runs:
                while commands and commands[0].after_run < run.number:
                    self._obey(commands.popleft(), heard, obey)
                again = run.number <= self._upto
                taken = self.judging.take(run.figures, self._lost if again else None)
                yield self._new(taken) if again or stateless else taken
                if asyncio.get_running_loop().time() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = asyncio.get_running_loop().time()
        for command in commands:
            self._obey(command, heard, obey)

    def _obey(self, command: Command, heard: int, obey: Callable[[Command], None]) -> None:
        if command.number > heard:
            obey(command)
        else:
            self.judging.obey(command, self._lost)

    def _new(self, taken: Taken) -> Taken:
        """Leave out the alarms that were raised before the states were lost."""
        raised = self._start.alarms
        new = [
            one
            for one in taken.decided
            if one.key not in raised or one.alarm.at_s > raised[one.key].at_s
        ]
        return replace(taken, decided=tuple(new))

    async def _commands(self, after: int) -> list[Command]:
        return await self._history.read(queries.person_commands, after)

    async def _slice(self, after: int, upto: int) -> tuple[list[PastRun], int]:
        return await self._history.read(queries.good_runs, after, upto, SLICE_RUNS)

    async def _first_of_last_days(self, upto: int) -> int:
        return await self._history.read(queries.first_run_within, upto, LEARN_S)
