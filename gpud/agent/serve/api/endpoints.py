"""Endpoints of the API. State comes from the snapshot, the past from the history.

The history is read beside its writer; one that cannot be read is a 503 with its reason.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts.state import MOST_ROWS, within
from gpud.agent.history import queries
from gpud.agent.history.charts import HistoryAnswer
from gpud.agent.history.queries import MOST_EVENTS, Window
from gpud.agent.history.telemetry import TelemetryAnswer
from gpud.agent.regression import commands
from gpud.agent.regression.changes import KINDS
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
from gpud.agent.serve.api.history import PARAMETERS as HISTORY_PARAMETERS
from gpud.agent.serve.api.history import (
    TELEMETRY_PARAMETERS,
    Charts,
    chart_query,
    telemetry_query,
)
from gpud.agent.serve.api.parameters import UnusableParameter, choice, count, moment
from gpud.agent.serve.http.response import Body, Cached
from gpud.agent.state import status
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.core.stats import LATENCY_BOUNDS_S
from gpud.document.runs import PointReport
from gpud.document.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.history.store import History
    from gpud.agent.serve.api.parameters import Parameter
    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.core.clock import Instant
    from gpud.core.sample import ProbeSpec, Sample
    from gpud.core.settings import Settings

DEFAULT_LIMIT: Final = 100
EVENT_KINDS: Final = (*KINDS, GPU_SEEN, GPU_FORGOTTEN, *commands.KINDS, commands.PROBE_REQUESTED)

SINCE: Final = moment("since", "from when on")
UNTIL: Final = moment("until", "until when")
KIND: Final = choice("kind", "only events of these kinds", EVENT_KINDS)
EVENT_LIMIT: Final = count(
    "limit", "how many at the most, the newest of them", default=DEFAULT_LIMIT, most=MOST_EVENTS
)
ALERTS_SINCE: Final = moment("since", "also what fired at any time since then")
ALERT_LIMIT: Final = count(
    "limit", "how many at the most, what began last first", default=DEFAULT_LIMIT, most=MOST_ROWS
)


@dataclass(frozen=True, slots=True)
class Description:
    """One path below /api/v1, as OpenAPI describes it."""

    path: str
    summary: str
    answer: type
    parameters: Sequence[Parameter[Any]] = ()
    refusals: Sequence[int] = ()  # beside those of any path


STATUS: Final = Description("/api/v1/status", "Everything of this moment", Status)
PROBES: Final = Description(
    "/api/v1/probes", "What is measured, and the last run of each", ProbesAnswer
)
HISTORY: Final = Description(
    "/api/v1/history",
    "Figures of one probe over time",
    HistoryAnswer,
    HISTORY_PARAMETERS,
    (404, 503),
)
TELEMETRY: Final = Description(
    "/api/v1/telemetry",
    "Temperature, power, clocks, use and throttling over time",
    TelemetryAnswer,
    TELEMETRY_PARAMETERS,
    (404, 503),
)
EVENTS: Final = Description(
    "/api/v1/events",
    "What happened to driver and machine",
    EventsAnswer,
    (SINCE, UNTIL, KIND, EVENT_LIMIT),
    (503,),
)
ALERTS: Final = Description(
    "/api/v1/alerts",
    "What fires, and what has fired",
    AlertsAnswer,
    (ALERTS_SINCE, ALERT_LIMIT),
    (503,),
)
DESCRIPTIONS: Final = (STATUS, PROBES, HISTORY, TELEMETRY, EVENTS, ALERTS)


def routes(
    read: Callable[[], Snapshot], history: History, settings: Settings, now: Callable[[], Instant]
) -> list[Route]:
    """Make the routes of the API. ``read`` gives the snapshot."""
    charts = Charts(settings.state_dir)
    cached: Cached[Body] | None = None

    async def status_now(_: QueryParams) -> Body:
        """Encode a snapshot once a second at most, however many clients ask."""
        nonlocal cached
        snapshot, at = read(), now()
        if cached is None or not cached.serves(at, snapshot):
            cached = Cached(Body.of(status.document(snapshot, now=at)), at.mono_s, snapshot)
        return cached.value

    async def probes(_: QueryParams) -> Body:
        return Body.of(probes_answer(read()))

    async def figures(query: QueryParams) -> Body:
        snapshot = read()
        return await charts.answer(chart_query(query, snapshot, now_s=now().wall_s), snapshot)

    async def telemetry(query: QueryParams) -> Body:
        snapshot = read()
        return await charts.answer(telemetry_query(query, snapshot, now_s=now().wall_s), snapshot)

    async def events(query: QueryParams) -> Body:
        window = _window(query)
        entries = await answers.read(history, queries.events, window)
        events = [{**entry.body, "kind": entry.kind, "at_s": entry.at_s} for entry in entries]
        limit = window.limit - 1
        answer = EventsAnswer(events[:limit], len(events) > limit)
        return await asyncio.to_thread(Body.of, answer)

    async def alerts(query: QueryParams) -> Body:
        """List what fires first, and each alert once: the history may be a moment behind."""
        since_s, limit = ALERTS_SINCE.value(query), ALERT_LIMIT.value(query) or DEFAULT_LIMIT
        listed = [status.alert_report(alert) for alert in read().alerts.alerts if alert.firing]
        if since_s is not None:  # without it no disk is needed
            current = {(each.fingerprint, each.starts_s) for each in listed}
            past = await answers.read(history, within, since_s, limit + 1)
            listed += [each for each in past if (each.fingerprint, each.starts_s) not in current]
        answer = AlertsAnswer(listed[:limit], len(listed) > limit)
        # In a thread: a thousand alerts with their evidence are megabytes.
        return await asyncio.to_thread(Body.of, answer)

    handlers = (status_now, probes, figures, telemetry, events, alerts)
    return [
        answers.route(description.path, description.parameters, handler)
        for description, handler in zip(DESCRIPTIONS, handlers, strict=True)
    ]


def _window(query: QueryParams) -> Window:
    """Read the query of events, with one more than the limit: it shows whether there are more."""
    since_s, until_s = SINCE.value(query), UNTIL.value(query)
    if since_s is not None and until_s is not None and since_s > until_s:
        raise UnusableParameter(
            "since", "since is later than until", "exchange the two", "bad_range"
        )
    limit = EVENT_LIMIT.value(query) or DEFAULT_LIMIT
    return Window(since_s, until_s, KIND.values(query), limit + 1)


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
    return ProbeRun(
        gpu=key.gpu,
        uuid=uuid,
        device=name,
        last_success_s=state.last_success_s,
        duration_s=state.duration_s,
        failure=state.failure,
        missing=report.missing if report else (),
        flags=state.flags,
        conditions=report.conditions if report else {},
        samples=tuple(_mode_figures(sample) for sample in state.samples),
        curve=tuple(status.built(PointReport, point) for point in report.curve) if report else (),
        skipped=put_off.reason if put_off else None,
    )


def _mode_figures(sample: Sample) -> ModeFigures:
    counted = sample.buckets
    buckets = Histogram(LATENCY_BOUNDS_S, counted.counts, counted.total) if counted else None
    return status.built(ModeFigures, sample, buckets=buckets)
