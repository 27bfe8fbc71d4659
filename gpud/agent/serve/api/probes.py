"""/api/v1/probes: what is measured here, and the last run of each, its distribution included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import Histogram, ModeFigures, Probe, ProbeRun, ProbesAnswer
from gpud.agent.serve.http.response import Body
from gpud.agent.state.status import figures
from gpud.core.sample import Pace
from gpud.core.stats import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.state.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.core.sample import ProbeSpec, Sample
    from gpud.core.sections import ScheduleSettings

PATH: Final = "/api/v1/probes"


def route(read: Callable[[], Snapshot], schedule: ScheduleSettings) -> Route:
    """Make the route: every answer is made of a snapshot."""

    async def probes(_: QueryParams) -> Body:
        return Body.of(document(read(), schedule))

    return answers.route(PATH, (), probes)


def document(snapshot: Snapshot, schedule: ScheduleSettings) -> ProbesAnswer:
    """List every probe, in the order of their names."""
    return ProbesAnswer(
        tuple(
            _probe(snapshot, spec, schedule)
            for spec in sorted(snapshot.specs, key=lambda spec: spec.name)
        ),
        dict(snapshot.refused),
    )


def _probe(snapshot: Snapshot, spec: ProbeSpec, schedule: ScheduleSettings) -> Probe:
    small = spec.pace is Pace.SMALL
    interval_s = schedule.small_interval_s if small else schedule.large_interval_s
    return Probe(
        spec.name,
        spec.summary,
        spec.backend,
        spec.pace,
        spec.every,
        interval_s * spec.every,
        spec.unit,
        spec.modes,
        spec.version,
        spec.budget_s,
        tuple(
            _run(snapshot, key, state)
            for key, state in snapshot.probes.items()
            if key.probe == spec.name
        ),
    )


def _run(snapshot: Snapshot, key: ProbeKey, state: ProbeState) -> ProbeRun:
    uuids = {gpu.number: (uuid, gpu.name) for uuid, gpu in snapshot.gpus.items()}
    uuid, name = (None, None) if key.gpu is None else uuids.get(key.gpu, (None, None))
    report = state.report
    put_off = snapshot.put_off.get(key)
    return ProbeRun(
        key.gpu,
        uuid,
        name,
        state.last_success_s,
        state.duration_s,
        state.failure,
        report.missing if report else (),
        state.flags,
        report.conditions if report else {},
        tuple(_figures(sample) for sample in state.samples),
        report.curve if report else (),
        put_off.reason if put_off else None,
    )


def _figures(sample: Sample) -> ModeFigures:
    counted = sample.buckets
    buckets = Histogram(LATENCY_BOUNDS_S, counted.counts, counted.total) if counted else None
    return ModeFigures(**figures(sample), buckets=buckets)
