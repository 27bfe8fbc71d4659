"""Telemetry by the minute: what was collected in it becomes a row of the history for each GPU.

A minute is that of the wall clock. It ends with the last collection in it, so that what is written
is no older than a minute. A minute that cannot be written is a hole.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpud.agent.history import telemetry
from gpud.agent.history.schema import MINUTE_S
from gpud.agent.history.telemetry import GAUGES, REASONS, TelemetryRow
from gpud.agent.telemetry import answers
from gpud.core.errors import StoreError
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpud.agent.history.store import History
    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant

THROTTLE: Final = "throttle_reasons"
FIELDS: Final = frozenset({*GAUGES, THROTTLE})

Values = defaultdict[str, list[float | str]]
"""The samples of one GPU by field."""


class TelemetryMinutes:
    """The samples of the present minute, and the minutes that are not written yet."""

    def __init__(
        self, history: History, board: Board, now: Callable[[], Instant], interval_s: float
    ) -> None:
        self._history = history
        self._board = board
        self._now = now
        self._interval_s = interval_s
        self._minute_s = 0
        self._samples: defaultdict[str, Values] = defaultdict(lambda: defaultdict(list))
        self._taken_s: Mapping[str, float] = {}  # of each source's last answer that was counted
        self._rows: list[TelemetryRow] = []
        self._ended = asyncio.Event()

    def sample(self) -> None:
        """Take in what the collection that has just ended read; an earlier reading counts once."""
        snapshot, at = self._board.read(), self._now()
        minute_s = int(at.wall_s // MINUTE_S) * MINUTE_S
        if minute_s != self._minute_s:
            self._end_minute()
            self._minute_s = minute_s
        before, last = self._taken_s, snapshot.telemetry.answers
        self._taken_s = {name: answer.taken_s for name, answer in last.items()}
        uuids = {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}
        for reading in answers.current(snapshot.telemetry, at.mono_s):
            new = before.get(reading.source) != self._taken_s[reading.source]
            if new and reading.field in FIELDS and not isinstance(reading.value, Absent):
                uuid = None if reading.gpu is None else uuids.get(reading.gpu)
                if uuid is not None:
                    self._samples[uuid][reading.field].append(reading.value)
        if at.wall_s + self._interval_s >= minute_s + MINUTE_S:
            self._end_minute()

    async def run(self) -> None:
        """Write each minute once it has ended; never ends."""
        while True:
            await self._ended.wait()
            self._ended.clear()
            await self._write()

    async def close(self) -> None:
        """Write what there is."""
        self._end_minute()
        await self._write()

    def _end_minute(self) -> None:
        self._rows += (
            TelemetryRow(MINUTE_S, self._minute_s, uuid, max(map(len, own.values())), _figures(own))
            for uuid, own in self._samples.items()
        )
        self._samples.clear()
        self._ended.set()

    async def _write(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            with suppress(StoreError):  # reported by the runs that cannot be written either
                await self._history.write(telemetry.write_minutes, rows)


def _figures(values: Values) -> tuple[float | None, ...]:
    """Return mean and ends of each gauge, and the share of the samples with each reason."""
    figures: list[float | None] = []
    for gauge in GAUGES:
        own = [float(value) for value in values.get(gauge, ())]
        figures += (sum(own) / len(own), min(own), max(own)) if own else (None, None, None)
    reasons = [str(text).split(",") for text in values.get(THROTTLE, ())]
    for reason in REASONS:
        figures.append(sum(reason in each for each in reasons) / len(reasons) if reasons else None)
    return tuple(figures)
