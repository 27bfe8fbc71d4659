"""Restoration at a start: the states that were written, and the runs that they do not contain."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gpud.agent.history import queries
from gpud.agent.history.queries import CONTEXTS, STREAM
from gpud.agent.regression.evaluation import Evaluator, SharedState, stream_name
from gpud.core.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gpud.agent.history.queries import PastRun, Start
    from gpud.agent.history.store import History
    from gpud.agent.regression.commands import Command
    from gpud.agent.regression.detector import Spans
    from gpud.agent.regression.evaluation import Results
    from gpud.core.sample import StreamKey

LEARN_S: Final = 3 * 86400.0
"""So far back are runs evaluated where no state is left: some 400 at one every ten minutes, and a
reference for each window."""
SLICE_RUNS: Final = 200
SLICE_S: Final = 0.002
"""Of the event loop's time at once, so that scrapes meanwhile do not wait."""

log = structlog.get_logger()


class Replay:
    """One start: ``restore``, then ``runs``; the state of all streams is in ``evaluator``."""

    def __init__(self, history: History, spans: Spans, start: Start) -> None:
        first_seq = {key: last.seq + 1 for key, last in start.alarms.items()}
        self.evaluator = Evaluator(spans, first_seq=first_seq)
        self._history = history
        self._start = start
        self._upto = 0  # the newest run that the states contain
        self._lost: set[StreamKey] = set()  # streams whose state could not be read
        self._stateless = True

    async def restore(self) -> None:
        """Read the states. Without the contexts none is of use. Errors: ``StoreError``."""
        start, contexts = self._start, self._start.contexts
        if contexts is None:
            return
        try:
            self.evaluator.shared = msgspec.json.decode(contexts.body, type=SharedState)
        except msgspec.MsgspecError as error:
            log.warning("state_damaged", name=CONTEXTS, why=str(error))
            return
        self._stateless = False
        if contexts.upto_run <= start.newest_run:  # else numbers of runs began again
            self._upto = contexts.upto_run
        for key in start.streams:
            state = await self._history.read(queries.state, f"{STREAM}{stream_name(key)}")
            try:
                self.evaluator.restore(key, "" if state is None else state.body)
            except WireError as error:
                log.warning("state_damaged", name=str(key), why=str(error))
                self._lost.add(key)

    async def runs(self, obey: Callable[[Command], None]) -> AsyncIterator[Results]:
        """Evaluate the runs that the states do not contain; yield the results of each.

        Streams whose state is lost learn from the runs of the last days, and what they had raised
        before is not raised again. ``obey`` is called with people's commands, each at its place
        among the runs. Errors: ``StoreError``.
        """
        obeyed, after = self.evaluator.shared.obeyed, self._upto
        if self._stateless or self._lost:
            upto = self._start.newest_run if self._stateless else self._upto
            after = await self._history.read(queries.first_run_within, upto, LEARN_S)
        earlier = 0 if self._lost else obeyed
        commands = deque(await self._history.read(queries.person_commands, earlier))

        def obey_before(number: float) -> None:
            while commands and commands[0].after_run < number:
                command = commands.popleft()
                if command.number > obeyed:
                    obey(command)
                else:
                    self.evaluator.obey(command, self._lost)

        async for run in self._good_runs(after):
            obey_before(run.number)
            again = run.number <= self._upto
            results = self.evaluator.evaluate(run.figures, self._lost if again else None)
            if again or self._stateless:
                self._drop_raised(results)
            yield results
        obey_before(float("inf"))

    async def _good_runs(self, after: int) -> AsyncIterator[PastRun]:
        """Yield the runs beyond a number in slices, and let the event loop run in between."""
        clock, newest = asyncio.get_running_loop().time, self._start.newest_run
        began_s = clock()
        while after < newest:
            runs, after = await self._history.read(queries.good_runs, after, newest, SLICE_RUNS)
            for run in runs:
                yield run
                if clock() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = clock()

    def _drop_raised(self, results: Results) -> None:
        """Drop the alarms that were raised before the states were lost."""
        raised = self._start.alarms
        results.alarms[:] = [
            alarm
            for alarm in results.alarms
            if alarm.key not in raised or alarm.alarm.at_s > raised[alarm.key].at_s
        ]
