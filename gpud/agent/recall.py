"""What the detectors knew when the last life ended: states that were written, and runs since."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import eventrows, pastruns, staterows
from gpud.agent.staterows import CONTEXTS, of_stream
from gpud.core.errors import StoreError, WireError
from gpud.core.judging import Judging, SharedState, Taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from gpud.agent.staterows import Start, State
    from gpud.agent.store import History
    from gpud.core.commands import Choice, Command
    from gpud.core.detector import Parameters
    from gpud.core.streams import Figures, StreamKey

QUIET_S: Final = 7 * 86400.0
"""A stream without a sample for so long (its GPU is gone, its probe renamed) leaves the memory."""
LEARN_S: Final = 3 * 86400.0
"""So far back is looked where no state is left: a reference is of 17 hours at one a minute."""
SLICE_RUNS: Final = 200
SLICE_S: Final = 0.002
"""Of the event loop's time at once: whoever scrapes meanwhile is not kept waiting."""


class Recall:
    """One beginning, and afterwards the way to streams that are ``resting`` in the history only.

    ``damaged`` says of each state that could not be read why, by its name; ``heard`` is the last
    command that the states have taken into account.
    """

    def __init__(self, history: History, parameters: Parameters, start: Start) -> None:
        self._history = history
        self._start = start
        self.judging = Judging(
            parameters, first_seq={key: last.seq + 1 for key, last in start.told.items()}
        )
        self.resting: set[StreamKey] = set()
        self.damaged: dict[str, str] = {}
        self.heard = 0
        self._upto: int | None = None  # the newest run that the states know; None: there are none
        self._lost: set[StreamKey] = set()  # streams whose state alone could not be read

    async def restore(self) -> None:
        """Read the states; those that cannot be used are set aside. Errors: ``StoreError``."""
        contexts = self._start.contexts
        if contexts is not None and self._restored_contexts(contexts):
            self._upto = contexts.upto_run
            for key, at_s in self._start.streams.items():
                if self.judging.shared.newest_s - at_s > QUIET_S:
                    self.resting.add(key)
                else:
                    await self._restore_stream(key)
                    await asyncio.sleep(0)
        elif self._start.streams:  # without the contexts nobody knows what their drivers were
            self.damaged |= {
                of_stream(key): "the contexts of the states are lost" for key in self._start.streams
            }
        if self.damaged:
            names = tuple(self.damaged)
            with suppress(StoreError):  # then they are found damaged again, or written over
                await self._history.ask(
                    lambda store: store.write(lambda rows: staterows.set_aside(rows, names))
                )

    async def replayed(self, obey: Callable[[Command], Awaitable[None]]) -> AsyncIterator[Taken]:
        """Take in what the states do not know; give what each run did, as if it came only now.

        ``obey`` is called with what a person said, at its place among the runs. What had been told
        before a state was lost is not told again. Errors: ``StoreError``.
        """
        newest, upto = self._start.newest_run, self._upto
        said = deque(await heard_since(self._history, self.heard))
        if upto is None:
            async for taken in self._runs(await self._learnt_from(newest), newest, said, obey):
                yield self._untold(taken)
            return
        if upto > newest:  # every run of then is gone, and numbers begin anew
            upto = 0
        if self._lost:
            async for taken in self._learnt(upto):
                yield self._untold(taken)
        async for taken in self._runs(upto, newest, said, obey):
            yield taken

    async def wake(self, run: Figures) -> None:
        """Bring streams that a run is of back to memory. Errors: ``StoreError``."""
        await self._wake(self.judging.of(run) & self.resting)

    async def wake_chosen(self, choice: Choice) -> None:
        """Bring streams that a person means back to memory. Errors: ``StoreError``."""
        await self._wake({key for key in self.resting if choice.holds(key)})

    async def _wake(self, keys: Collection[StreamKey]) -> None:
        for key in keys:
            with suppress(WireError):  # it begins anew: what it was is older than what is learnt of
                await self._woken(key)
            self.resting.discard(key)

    async def _learnt(self, upto: int) -> AsyncIterator[Taken]:
        """Learn the lost streams anew, from the runs of the last days that the others know."""
        known = self.judging
        again = Judging(known.parameters, known.shared, first_seq=known.first_seq)
        first = await self._learnt_from(upto)
        said = await heard_since(self._history, 0)
        past = deque(one for one in said if one.number <= self.heard)

        async def obey(command: Command) -> None:
            again.obey(command, self._lost)

        async for taken in self._runs(first, upto, past, obey, again):
            yield taken
        known.streams |= again.streams

    async def _runs(
        self,
        after: int,
        upto: int,
        said: deque[Command],
        obey: Callable[[Command], Awaitable[None]],
        again: Judging | None = None,
    ) -> AsyncIterator[Taken]:
        """Take in the runs of a stretch; ``again`` learns the lost streams from them alone."""
        judging, only = (self.judging, None) if again is None else (again, self._lost)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while after < upto:
            runs, after = await self._slice(after, upto)
            for run in runs:
                while said and said[0].after_run < run.number:
                    await obey(said.popleft())
                if again is None:
                    await self.wake(run.figures)
                yield judging.take(run.figures, only)
                if loop.time() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = loop.time()
        for command in said:
            await obey(command)

    async def _slice(self, after: int, upto: int) -> tuple[list[pastruns.PastRun], int]:
        return await self._history.ask(
            lambda store: store.read(lambda rows: pastruns.behind(rows, after, upto, SLICE_RUNS))
        )

    async def _learnt_from(self, upto: int) -> int:
        return await self._history.ask(
            lambda store: store.read(lambda rows: pastruns.first_within(rows, upto, LEARN_S))
        )

    def _restored_contexts(self, state: State) -> bool:
        try:
            self.judging.shared = msgspec.json.decode(state.body, type=SharedState)
        except msgspec.MsgspecError as error:
            self.damaged[CONTEXTS] = f"the state {CONTEXTS} is damaged: {error}"
            return False
        self.heard = self.judging.shared.heard
        return True

    async def _restore_stream(self, key: StreamKey) -> None:
        try:
            await self._woken(key)
        except WireError as error:
            self.damaged[of_stream(key)] = str(error)
            self._lost.add(key)

    async def _woken(self, key: StreamKey) -> None:
        name = of_stream(key)
        state = await self._history.ask(
            lambda store: store.read(lambda rows: staterows.get(rows, name))
        )
        if state is None:
            raise WireError(f"the state {name} is gone")
        self.judging.restore(key, state.body)

    def _untold(self, taken: Taken) -> Taken:
        told = self._start.told
        fresh = tuple(
            one
            for one in taken.decided
            if one.key not in told or one.alarm.at_s > told[one.key].at_s
        )
        return Taken(taken.keys, fresh, taken.settled)


async def heard_since(history: History, number: int) -> list[Command]:
    """Give what a person said after a command. Errors: ``StoreError``."""
    return await history.ask(
        lambda store: store.read(lambda rows: eventrows.decisions(rows, number))
    )
