"""Actions of the agent for people who ask over its socket; each is an event with their uid."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from gpud.agent.history import records
from gpud.agent.history.records import Entry
from gpud.agent.measure.session import Session
from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    PROBE_REQUESTED,
    Choice,
)
from gpud.agent.serve.local import choosing, exporting
from gpud.core.errors import GpudError
from gpud.requests import (
    AcceptRequest,
    AckRequest,
    AlertLine,
    ChoiceLine,
    ContextsRequest,
    ForgetRequest,
    GpuLine,
    HistoryRequest,
    ProbeRequest,
    ResetRequest,
    TelemetryRequest,
    TopRequest,
    WaitLine,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from gpud.agent.history.store import History
    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.pipeline import Pipeline
    from gpud.agent.regression.service import Regression
    from gpud.agent.serve.local.watching import Watching
    from gpud.agent.state.changes import ChangeDetection
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.settings import Settings
    from gpud.requests import AnswerLine, ApiRequest

BUSY: Final = "somebody else's gpud probe runs, and another waits for its end"


class Actions:
    """The parts of the agent that people may have do something."""

    def __init__(  # noqa: PLR0913  # the parts, each passed by name
        self,
        settings: Settings,
        *,
        read: Callable[[], Snapshot],
        history: History,
        regression: Regression,
        changes: ChangeDetection,
        launcher: Launcher,
        pipeline: Pipeline,
        watching: Watching,
    ) -> None:
        self._settings = settings
        self._read = read
        self._history = history
        self._regression = regression
        self._changes = changes
        self._launcher = launcher
        self._pipeline = pipeline
        self._watching = watching
        self._probing = asyncio.Lock()
        self._waiting = False

    def answer(  # one for each request
        self, request: ApiRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        """Do what is asked, and give the lines of the answer. Errors: ``GpudError``."""
        match request:
            case AckRequest():
                lines = self._acknowledge(request, uid)
            case AcceptRequest():
                lines = self._accept(request, uid)
            case ResetRequest():
                lines = self._reset(request, uid)
            case ForgetRequest():
                lines = self._forget(request, uid)
            case HistoryRequest() | TelemetryRequest():
                lines = self._rows(request)
            case ProbeRequest():
                lines = self._probe(request, uid)
            case ContextsRequest():
                lines = self._count_contexts(request, uid)
            case TopRequest():
                lines = self._watching.lines()
        return lines

    def _rows(
        self, request: HistoryRequest | TelemetryRequest
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        snapshot, state_dir = self._read(), self._settings.state_dir
        numbers = {uuid: gpu.number for uuid, gpu in snapshot.gpus.items()}
        if isinstance(request, TelemetryRequest):
            return exporting.telemetry_lines(state_dir, request, numbers)
        return exporting.lines(state_dir, request, numbers, snapshot.measure.specs)

    async def _acknowledge(
        self, request: AckRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        fingerprint = choosing.firing(self._read(), request.alert)
        await self._regression.decide(ALERT_ACKNOWLEDGED, uid, fingerprint=fingerprint)
        yield AlertLine(fingerprint=fingerprint)

    async def _accept(
        self, request: AcceptRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        for choice in choosing.accepted(self._read(), request):
            await self._regression.decide(BASELINE_ACCEPTED, uid, choice)
            yield _line(choice)

    async def _reset(
        self, request: ResetRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        requested = Choice(request.gpu, request.probe, request.mode)
        choice = choosing.existing(requested, self._read())
        await self._regression.decide(BASELINE_RESET, uid, choice)
        yield _line(choice)

    async def _forget(
        self, request: ForgetRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        gpus = choosing.expected(self._read(), request.gpus)
        await self._changes.forget(gpus, uid)
        for uuid, gpu in gpus.items():
            yield GpuLine(uuid=uuid, name=gpu.name)

    async def _count_contexts(
        self, request: ContextsRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        contexts = self._launcher.contexts
        if contexts is not None:  # first: they are made whether or not the history can be written
            contexts.made(count=request.count)
        event = Entry(time.time(), PROBE_REQUESTED, {"contexts": request.count, "uid": uid})
        await self._history.write(records.write_events, [event])
        if contexts is not None and (words := contexts.warning) is not None:
            yield WaitLine(message=words)

    async def _probe(
        self, request: ProbeRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        if self._waiting:
            raise GpudError(BUSY, fix="try again later")
        self._waiting = True
        try:
            await self._probing.acquire()
        finally:
            self._waiting = False
        try:
            names = " ".join(request.names)
            event = Entry(time.time(), PROBE_REQUESTED, {"probes": names, "uid": uid})
            await self._history.write(records.write_events, [event])
            session = Session(self._settings, request, self._launcher, self._pipeline)
            async for line in session.lines():
                yield line
        finally:
            self._probing.release()


def _line(choice: Choice) -> ChoiceLine:
    return ChoiceLine(gpu=choice.gpu, probe=choice.probe, mode=choice.mode)
