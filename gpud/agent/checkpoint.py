"""When the detectors' states are written, and how: all of one moment, with what they decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from gpud.agent import pastruns, staterows
from gpud.agent.staterows import CONTEXTS, State, of_stream

if TYPE_CHECKING:
    import sqlite3

    from gpud.agent.store import History
    from gpud.core.judging import Decided, Judging, Settled, Taken
    from gpud.core.streams import StreamKey

MOST_RUNS: Final = 1000
"""Runs that may have to be judged again after a kill: a second's work."""
LONGEST_S: Final = 6 * 3600.0
"""States that have changed are not older than this. Each writing is a megabyte or so."""
MOST_WAITING: Final = 1000
"""Alarms and verdicts that wait for a disk. The oldest go first: they are in the states as well."""


class Checkpoint:
    """What has changed since the states were written. An alarm or a verdict is written at once."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.changed: set[StreamKey] = set()
        self._decided: list[Decided] = []
        self._settled: list[Settled] = []
        self._runs = 0
        self._urgent = False
        self._written_s = 0.0  # by the monotonic clock
        self._upto = 0  # the newest run of then

    def note(self, taken: Taken) -> None:
        """Take note of a run that was judged."""
        self.changed.update(taken.keys)
        self._decided += taken.decided
        self._settled += taken.settled
        del self._decided[:-MOST_WAITING], self._settled[:-MOST_WAITING]
        self._runs += 1
        self._urgent |= bool(taken.decided or taken.settled)

    def hurry(self) -> None:
        """Have the states written soon: a person has said something."""
        self._urgent = True

    def begun(self, now_mono_s: float) -> None:
        """Count the time from now on."""
        self._written_s = now_mono_s

    def due(self, now_mono_s: float) -> bool:
        """Say whether it is time to write."""
        late = bool(self.changed) and now_mono_s - self._written_s >= LONGEST_S
        return self._urgent or self._runs >= MOST_RUNS or late

    @property
    def behind(self) -> bool:
        """Whether anything is in memory only."""
        return self._urgent or bool(self.changed)

    async def write(self, judging: Judging, heard: int, now_mono_s: float) -> None:
        """Write it, while nobody judges: the caller sees to that, and that no run waits for a disk.

        ``heard`` is the last command that the states have taken into account. Errors:
        ``StoreError``, and nothing is written.
        """
        before = self._upto
        if await self._write(judging, heard) < before:
            # Another file was begun meanwhile, and the states that had not changed are not in it.
            self.changed.update(judging.streams)
            await self._write(judging, heard)
        self._runs, self._urgent, self._written_s = 0, False, now_mono_s

    async def _write(self, judging: Judging, heard: int) -> int:
        changed, decided, settled = set(self.changed), self._decided[:], self._settled[:]
        judging.shared.heard = heard
        states = {CONTEXTS: (judging.shared.newest_s, msgspec.json.encode(judging.shared))}
        for key in changed & judging.streams.keys():
            states[of_stream(key)] = (judging.streams[key].last_s, judging.encoded(key))
            await asyncio.sleep(0)  # each takes a millisecond or two

        def written(transaction: sqlite3.Connection) -> int:
            upto = pastruns.newest(transaction)
            staterows.tell(transaction, decided, settled)
            staterows.put(
                transaction,
                (State(name, upto, at_s, body) for name, (at_s, body) in states.items()),
            )
            return upto

        upto = await self._history.ask(lambda store: store.write(written))
        self.changed -= changed
        del self._decided[: len(decided)], self._settled[: len(settled)]
        self._upto = upto
        return upto
