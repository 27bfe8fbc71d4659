"""Actions of the agent for people who ask over its socket; each is an event with their uid.

A request that names an alert, a stream or a GPU that does not exist is refused (``ConfigError``)
with those that do.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpud.agent.history import records
from gpud.agent.history.records import Entry
from gpud.agent.measure.session import Session
from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    PROBE_REQUESTED,
)
from gpud.agent.serve.local import exporting
from gpud.core.errors import ConfigError, GpudError
from gpud.core.gpu_names import Label, uuid_of
from gpud.core.streams import CPU, Choice
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
    TopRequest,
    WaitLine,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from gpud.agent.history.store import History
    from gpud.agent.measure.launch import Launcher
    from gpud.agent.measure.pipeline import Pipeline
    from gpud.agent.regression.service import Regression
    from gpud.agent.serve.local.watching import Watching
    from gpud.agent.state.changes import ChangeDetection
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.settings import Settings
    from gpud.document.machine import Expected
    from gpud.requests import AnswerLine, ApiRequest

BUSY: Final = "somebody else's gpud probe runs, and another waits for its end"
ALL: Final = "all"


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
            case HistoryRequest():
                lines = self._rows(request)
            case ProbeRequest():
                lines = self._probe(request, uid)
            case ContextsRequest():
                lines = self._count_contexts(request, uid)
            case TopRequest():
                lines = self._watching.lines()
        return lines

    def _rows(self, request: HistoryRequest) -> AsyncGenerator[AnswerLine | bytes, None]:
        snapshot, state_dir = self._read(), self._settings.state_dir
        return exporting.lines(state_dir, request, _labels(snapshot), snapshot.measure.specs)

    async def _acknowledge(
        self, request: AckRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        fingerprint = _firing(self._read(), request.alert)
        await self._regression.decide(ALERT_ACKNOWLEDGED, uid, fingerprint=fingerprint)
        yield AlertLine(fingerprint=fingerprint)

    async def _accept(
        self, request: AcceptRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        for choice in _accepted(self._read(), request):
            await self._regression.decide(BASELINE_ACCEPTED, uid, choice)
            yield ChoiceLine(choice=choice)

    async def _reset(
        self, request: ResetRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        choice = _existing(request.choice, self._read())
        await self._regression.decide(BASELINE_RESET, uid, choice)
        yield ChoiceLine(choice=choice)

    async def _forget(
        self, request: ForgetRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        gpus = _expected(self._read(), request.gpus)
        await self._changes.forget(gpus, uid)
        for uuid, gpu in gpus.items():
            yield GpuLine(uuid=uuid, name=gpu.name)

    async def _count_contexts(
        self, request: ContextsRequest, uid: int
    ) -> AsyncGenerator[AnswerLine | bytes, None]:
        contexts = self._launcher.contexts
        contexts.made(count=request.count)  # first: they are made though nothing can be written
        event = Entry(time.time(), PROBE_REQUESTED, {"contexts": request.count, "uid": uid})
        await self._history.write(records.write_events, [event])
        if (words := contexts.warning) is not None:
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


def _firing(snapshot: Snapshot, prefix: str) -> str:
    """Return the fingerprint of the firing alert that begins with ``prefix``.

    Errors: ``ConfigError`` for none and for several.
    """
    alerts = list(
        dict.fromkeys(alert.fingerprint for alert in snapshot.alerts.alerts if alert.firing)
    )
    fitting = [name for name in alerts if prefix and name.startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if not alerts:
        raise ConfigError(f"no alert {prefix} fires, nor does any other")
    message = f"more than one alert begins with {prefix}" if fitting else f"no alert {prefix} fires"
    raise ConfigError(message, fix=f"one of: {', '.join(alerts)}; `gpud alerts` says what they are")


def _accepted(snapshot: Snapshot, request: AcceptRequest) -> tuple[Choice, ...]:
    """Give what to accept: the choice, or of an alert's streams those that it holds."""
    choice = _existing(request.choice, snapshot)
    if request.alert is None:
        return (choice,)
    fingerprint = _firing(snapshot, request.alert)
    streams = [
        piece.stream
        for alert in snapshot.alerts.alerts
        if alert.firing and alert.fingerprint == fingerprint
        for piece in alert.evidence
        if choice.holds(piece.stream)
    ]
    chosen = tuple(dict.fromkeys(Choice(key.gpu or CPU, key.probe, key.mode) for key in streams))
    if not chosen:
        message = f"the alert {request.alert} has no figures of {choice}"
        raise ConfigError(message, fix="`gpud alerts` lists the figures of each alert")
    return chosen


def _existing(choice: Choice, snapshot: Snapshot) -> Choice:
    """Give a choice, its GPU with the whole UUID, whose every part exists, and exists together."""
    streams = snapshot.streams  # that have a baseline, or will
    if choice.gpu is not None:
        measured = dict.fromkeys((key.gpu or CPU for key in streams), Label())
        choice = replace(choice, gpu=uuid_of(choice.gpu, measured | _labels(snapshot)))
    if not any(map(choice.holds, streams)):
        names = sorted({f"{key.probe} {key.mode}" for key in streams})
        fix = f"one of: {', '.join(names)}; `gpud baseline show` says more"
        raise ConfigError(f"there are no figures of {choice}", fix=fix)
    return choice


def _expected(snapshot: Snapshot, names: tuple[str, ...]) -> Mapping[str, Expected]:
    """Give the GPUs that were here, by UUID, of these names; ``all`` are all of them."""
    if ALL in names:
        return snapshot.changes.expected
    expected, listed = snapshot.changes.expected, _labels(snapshot)
    labels = {uuid: listed.get(uuid, Label(name=gpu.name)) for uuid, gpu in expected.items()}
    uuids = (uuid_of(name, labels) for name in names)
    return {uuid: expected[uuid] for uuid in uuids}


def _labels(snapshot: Snapshot) -> dict[str, Label]:
    return {uuid: Label(gpu.number, gpu.name) for uuid, gpu in snapshot.gpus.items()}
