"""/api/v1/history: figures of one probe over time, thinned out, beside the writer.

The answer is made in a thread with a connection of its own, within a time: the thread that writes
is not asked. Up to two days come from the runs themselves, longer from the hours. Who asks the
same within a moment gets the same answer: a page that many look at costs what one of them does.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent import historyrows, reader
from gpud.agent.historyrows import CPU, Wanted
from gpud.agent.web.api import answers
from gpud.agent.web.api.answers import Body
from gpud.agent.web.api.documents import HistoryAnswer
from gpud.agent.web.api.queries import Unknown, Unusable, count, moment, named
from gpud.agent.web.api.thinning import HOUR_S, Steps, thinned
from gpud.core.errors import StoreError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.historyrows import Thin
    from gpud.agent.web.api.documents import Series
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/history"
USUAL_RANGE_S: Final = 86400.0
RAW_RANGE_S: Final = 2 * 86400.0
LONGEST_S: Final = 3 * 366 * 86400.0
USUAL_POINTS: Final = 300
MOST_POINTS: Final = 2000
PATIENCE_S: Final = 3.0
WAITING: Final = 16
"""Different questions at a time, one of them being answered; another is told to come again."""
KEPT_S: Final = 5.0
KEPT_BYTES: Final = 2**19
"""Of answers that may be asked for once more; the oldest go first."""

PROBE: Final = named("probe", "the probe, as /api/v1/probes names it", "launch", required=True)
MODE: Final = named("mode", "its modes; all of them where none is given", "submit", many=True)
GPU: Final = named("gpu", "GPUs by UUID or number, or cpu; all where none is given", "0", many=True)
SINCE: Final = moment("since", "from when on; a day before `until` where it is not given")
UNTIL: Final = moment("until", "until when; now where it is not given")
POINTS: Final = count(
    "points", "how many steps make up the range, at the most", usual=USUAL_POINTS, most=MOST_POINTS
)
PARAMETERS: Final = (PROBE, MODE, GPU, SINCE, UNTIL, POINTS)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for. GPUs are UUIDs and ``CPU``."""

    probe: str
    modes: tuple[str, ...]
    gpus: tuple[str, ...]
    steps: Steps
    hourly: bool  # the range is so long that hours are read

    @property
    def wanted(self) -> Wanted:
        """Say which rows it is made of."""
        steps = self.steps
        return Wanted(steps.since_s, steps.until_s, (self.probe,), self.modes, self.gpus)


@dataclass(frozen=True, slots=True)
class Known:
    """What the program has or had, whatever the history holds."""

    modes: dict[str, tuple[str, ...]]  # by probe
    gpus: dict[str, int]  # numbers, by UUID

    @classmethod
    def of(cls, snapshot: Snapshot) -> Known:
        """Take it out of a snapshot."""
        return cls(
            {spec.name: spec.modes for spec in snapshot.specs},
            {uuid: gpu.number for uuid, gpu in snapshot.gpus.items()},
        )


def route(directory: Path, read: Callable[[], Snapshot], now_s: Callable[[], float]) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""
    shared = _Shared(directory)

    async def history(query: QueryParams) -> Body:
        known = Known.of(read())
        return await shared.answer(parsed(query, known, now_s=now_s()), known)

    return answers.route(PATH, PARAMETERS, history)


def parsed(query: QueryParams, known: Known, *, now_s: float) -> Asked:
    """Read the query. Errors: ``Unusable``."""
    probe = PROBE.one(query)
    if probe is None:
        raise Unusable("probe", "which probe is not said", "probe=launch, as /api/v1/probes names")
    until_s = UNTIL.one(query)
    since_s = SINCE.one(query)
    until_s = now_s if until_s is None else until_s
    since_s = until_s - USUAL_RANGE_S if since_s is None else since_s
    if since_s >= until_s:
        raise Unusable("since", "since is not before until", "exchange the two", "bad_range")
    if until_s - since_s > LONGEST_S:
        raise Unusable("since", "that is more than three years", "ask for less", "bad_range")
    points = POINTS.one(query)
    hourly = until_s - since_s > RAW_RANGE_S
    steps = Steps.over(
        since_s,
        until_s,
        most=USUAL_POINTS if points is None else points,
        least_s=HOUR_S if hourly else 1,
    )
    gpus = (_gpu(text, known) for text in GPU.all(query))
    return Asked(probe, MODE.all(query), tuple(dict.fromkeys(gpus)), steps, hourly)


def found(directory: Path, asked: Asked, known: Known) -> HistoryAnswer:
    """Read and thin out. Errors: ``StoreError``; ``Unknown`` for a name that nobody knows."""
    series = reader.ask(directory, lambda c: _found(c, asked, known), patience_s=PATIENCE_S)
    return HistoryAnswer(
        asked.probe,
        asked.steps.since_s,
        asked.steps.until_s,
        asked.steps.length_s,
        "hours" if asked.hourly else "runs",
        series,
    )


class _Shared:
    """One thread that answers, and what it has answered lately."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self._asked: dict[Asked, asyncio.Future[Body]] = {}
        self._kept: dict[Asked, tuple[float, Body]] = {}

    async def answer(self, asked: Asked, known: Known) -> Body:
        """Give what is known already, or is being asked, or ask. Errors: those of ``found``."""
        loop = asyncio.get_running_loop()
        self._forget(loop.time() - KEPT_S)
        if asked in self._kept:
            return self._kept[asked][1]
        running = self._asked.get(asked)
        if running is None:
            if len(self._asked) >= WAITING:
                fix = "ask again in a second"
                raise StoreError("others ask too", reason="busy", fix=fix)
            running = loop.run_in_executor(
                self._thread, lambda: Body.of(found(self._directory, asked, known))
            )
            self._asked[asked] = running
            running.add_done_callback(lambda ended: self._keep(asked, ended, loop.time()))
        # Shielded: others may wait for it, and the thread is busy with it all the same.
        return await asyncio.shield(running)

    def _keep(self, asked: Asked, ended: asyncio.Future[Body], at_s: float) -> None:
        del self._asked[asked]
        if not ended.cancelled() and ended.exception() is None:
            self._kept[asked] = at_s, ended.result()

    def _forget(self, before_s: float) -> None:
        n_bytes = sum(len(body.data) for _, body in self._kept.values())
        for asked, (at_s, body) in tuple(self._kept.items()):
            if at_s >= before_s and n_bytes <= KEPT_BYTES:
                return
            del self._kept[asked]
            n_bytes -= len(body.data)


def _gpu(text: str, known: Known) -> str:
    """Give the UUID, or ``CPU``. Errors: ``Unknown`` for a number that no GPU has."""
    if text == "cpu":
        return CPU
    if not (text.isascii() and text.isdigit()):
        return text
    for uuid, number in known.gpus.items():
        if str(number) == text:
            return uuid
    raise Unknown("gpu", text, ("cpu", *_numbered(known)))


def _found(connection: sqlite3.Connection, asked: Asked, known: Known) -> list[Series]:
    series = thinned(_rows(connection, asked), asked.steps)
    if not series and asked.probe not in known.modes:
        names = historyrows.probes(connection)
        if asked.probe not in names:
            raise Unknown("probe", asked.probe, sorted({*known.modes, *names}))
    modes = {*known.modes.get(asked.probe, ()), *(one.mode for one in series)}
    for mode in asked.modes:
        if mode not in modes and not historyrows.has_mode(connection, asked.probe, mode):
            raise Unknown("mode", mode, sorted(modes))
    gpus = {CPU, *known.gpus, *(one.gpu for one in series)}
    if unseen := [gpu for gpu in asked.gpus if gpu not in gpus]:
        past = historyrows.gpus(connection)
        for gpu in unseen:
            if gpu not in past:
                raise Unknown("gpu", gpu, ("cpu", *_numbered(known), *past))
    return series


def _rows(connection: sqlite3.Connection, asked: Asked) -> Iterator[Thin]:
    if asked.hourly:
        return historyrows.thin_hours(connection, asked.wanted, most_s=RAW_RANGE_S)
    return historyrows.thin_runs(connection, asked.wanted)


def _numbered(known: Known) -> Sequence[str]:
    return [f"{number} ({uuid})" for uuid, number in known.gpus.items()]
