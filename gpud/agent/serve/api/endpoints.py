"""Endpoints of the API. State comes from the snapshot, the past from the history.

The history is read beside its writer; one that cannot be read is a 503 with its reason.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.alerts.state import within
from gpud.agent.history import queries
from gpud.agent.history.charts import HistoryAnswer
from gpud.agent.history.queries import Window
from gpud.agent.history.telemetry import TelemetryAnswer
from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import (
    AlertsAnswer,
    EventsAnswer,
    Histogram,
    ModeFigures,
    Probe,
    ProbeRun,
    ProbesAnswer,
)
from gpud.agent.serve.api.history import Charts, chart_query, telemetry_query
from gpud.agent.serve.api.parameters import (
    AlertParameters,
    EventParameters,
    HistoryParameters,
    NoParameters,
    TelemetryParameters,
    UnusableParameter,
    unix_s,
)
from gpud.agent.serve.http.response import Body, each_second
from gpud.agent.state import status
from gpud.core.stats import LATENCY_BOUNDS_S
from gpud.document.runs import PointReport
from gpud.document.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec
    from starlette.routing import Route

    from gpud.agent.history.store import History
    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import ProbeSpec, Sample
    from gpud.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Description:
    """One path below /api/v1, as OpenAPI describes it."""

    path: str
    summary: str
    answer: type
    parameters: type[msgspec.Struct] = NoParameters


DESCRIPTIONS: Final = (
    Description("/api/v1/status", "Everything of this moment", Status),
    Description("/api/v1/probes", "What is measured, and the last run of each", ProbesAnswer),
    Description(
        "/api/v1/history", "Figures of one probe over time", HistoryAnswer, HistoryParameters
    ),
    Description(
        "/api/v1/telemetry",
        "Temperature, power, clocks, use and throttling over time",
        TelemetryAnswer,
        TelemetryParameters,
    ),
    Description(
        "/api/v1/events", "What happened to driver and machine", EventsAnswer, EventParameters
    ),
    Description("/api/v1/alerts", "What fires, and what has fired", AlertsAnswer, AlertParameters),
)


def routes(
    read: Callable[[], Snapshot], history: History, settings: Settings, now: Callable[[], Instant]
) -> list[Route]:
    """Make the routes of the API. ``read`` gives the snapshot."""
    charts = Charts(settings.state_dir)
    present = each_second(lambda at: Body.of(status.document(read(), now=at)), now, read)

    async def status_now(_: NoParameters) -> Body:
        return present()

    async def probes(_: NoParameters) -> Body:
        return Body.of(probes_answer(read()))

    async def figures(query: HistoryParameters) -> Body:
        snapshot = read()
        return await charts.answer(chart_query(query, snapshot, now_s=now().wall_s), snapshot)

    async def telemetry(query: TelemetryParameters) -> Body:
        snapshot = read()
        return await charts.answer(telemetry_query(query, snapshot, now_s=now().wall_s), snapshot)

    async def events(query: EventParameters) -> Body:
        window = _window(query)
        entries = await answers.read(history.read(queries.events, window))
        events = [{**entry.body, "kind": entry.kind, "at_s": entry.at_s} for entry in entries]
        answer = EventsAnswer(events[: query.limit], len(events) > query.limit)
        return await asyncio.to_thread(Body.of, answer)

    async def alerts(query: AlertParameters) -> Body:
        """List what fires first, and each alert once: the history may be a moment behind."""
        since_s, limit = unix_s(query.since), query.limit
        listed = [status.alert_report(alert) for alert in read().alerts.alerts if alert.firing]
        if since_s is not None:  # without it no disk is needed
            current = {(each.fingerprint, each.starts_s) for each in listed}
            past = await answers.read(history.read(within, since_s, limit + 1))
            listed += [each for each in past if (each.fingerprint, each.starts_s) not in current]
        answer = AlertsAnswer(listed[:limit], len(listed) > limit)
        # In a thread: a thousand alerts with their evidence are megabytes.
        return await asyncio.to_thread(Body.of, answer)

    handlers: tuple[Any, ...] = (status_now, probes, figures, telemetry, events, alerts)
    return [
        answers.route(description.path, description.parameters, handler)
        for description, handler in zip(DESCRIPTIONS, handlers, strict=True)
    ]


def _window(query: EventParameters) -> Window:
    """Read the query of events, with one more than the limit: it shows whether there are more."""
    since_s, until_s = unix_s(query.since), unix_s(query.until)
    if since_s is not None and until_s is not None and since_s > until_s:
        raise UnusableParameter(
            "since", "since is later than until", "exchange the two", "bad_range"
        )
    return Window(since_s, until_s, query.kind, query.limit + 1)


def probes_answer(snapshot: Snapshot) -> ProbesAnswer:
    """List every probe with its last run on each GPU, in the order of their names."""
    specs = sorted(snapshot.measure.specs, key=lambda spec: spec.name)
    return ProbesAnswer(
        tuple(_probe(snapshot, spec) for spec in specs), dict(snapshot.measure.refused)
    )


def _probe(snapshot: Snapshot, spec: ProbeSpec) -> Probe:
    return Probe(
        name=spec.name,
        description=spec.summary,
        backend=spec.backend,
        pace=spec.pace,
        every=spec.every,
        interval_s=snapshot.pace.beat.run_s(spec),
        unit=spec.unit,
        modes=spec.modes,
        version=spec.version,
        budget_s=spec.budget_s,
        last=tuple(
            _run(snapshot, key, state)
            for key, state in snapshot.measure.probes.items()
            if key.probe == spec.name
        ),
    )


def _run(snapshot: Snapshot, key: ProbeKey, state: ProbeState) -> ProbeRun:
    names = {gpu.number: (uuid, gpu.name) for uuid, gpu in snapshot.gpus.items()}
    uuid, name = (None, None) if key.gpu is None else names.get(key.gpu, (None, None))
    report, put_off = state.report, snapshot.measure.put_off.get(key)
    return status.built(
        ProbeRun,
        report,
        gpu=key.gpu,
        uuid=uuid,
        device=name,
        last_success_s=state.last_success_s,
        duration_s=report.duration_s or None,
        flags=state.flags,
        samples=tuple(_mode_figures(sample) for sample in report.samples),
        curve=tuple(status.built(PointReport, point) for point in report.curve),
        skipped=put_off.reason if put_off else None,
    )


def _mode_figures(sample: Sample) -> ModeFigures:
    counted = sample.buckets
    buckets = Histogram(LATENCY_BOUNDS_S, counted.counts, counted.total) if counted else None
    return status.built(ModeFigures, sample, buckets=buckets)
