"""Changes of a snapshot as a story tells them: each function returns what makes the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as record
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from gpud.agent.state import gpus, health, runs
from gpud.agent.state import telemetry as answers
from gpud.agent.state.changes import ChangeDetection, with_changes
from gpud.agent.state.facts import real
from gpud.agent.state.snapshot import (
    AlertsState,
    ChangesState,
    HttpState,
    MachineState,
    MeasureState,
    RootState,
    Snapshot,
    after_jump,
    probe_key,
    with_refusals,
)
from gpud.agent.telemetry.answers import Answer
from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from gpud.core.sample import Reading
from gpud.core.telemetry import LEVELS
from gpud.document.machine import ListedGpu
from gpud.document.runs import RecentSeries

if TYPE_CHECKING:
    from gpud.agent.regression.detector import StreamStanding
    from gpud.agent.serve.refusals import Refused
    from gpud.agent.state.board import Board
    from gpud.core.alerts import Alert, SinkState
    from gpud.core.report import RootReport
    from gpud.core.sample import Absent, Flag, Inventory, ProbeSpec, RunReport, Skip, Unit
    from gpud.core.streams import StreamKey
    from gpud.document.machine import BreakerReport, ChangeReport, Expected, StoreSize

Event: TypeAlias = Callable[[Snapshot], Snapshot]
STATES = {
    "machine": MachineState,
    "measure": MeasureState,
    "changes": ChangesState,
    "root": RootState,
    "alerts": AlertsState,
    "http": HttpState,
}
SUBJECT = {name: subject for subject, state in STATES.items() for name in state.__struct_fields__}


def made(version: str = "1", started_s: float = 0.0, **values: object) -> Snapshot:
    """Return a snapshot with these values, each in the state of its subject."""
    return altered(Snapshot(MachineState(version, started_s)), **values)


def altered(snapshot: Snapshot, **values: Any) -> Snapshot:
    """Return a snapshot with other values, each in the state of its subject."""
    for name, value in values.items():
        whole = name in Snapshot.__struct_fields__ and isinstance(value, Struct)
        if name in SUBJECT and not whole:
            state = replace(getattr(snapshot, SUBJECT[name]), **{name: value})
            snapshot = replace(snapshot, **{SUBJECT[name]: state})
        else:
            snapshot = replace(snapshot, **{name: value})
    return snapshot


def folded(start: Snapshot, *events: Event) -> Snapshot:
    """Return what the events make of a snapshot, one after the other."""
    for event in events:
        start = event(start)
    return start


def post(board: Board, event: Event) -> None:
    """Publish what an event makes of the present snapshot."""
    after = event(board.read())
    board.publish(**{name: getattr(after, name) for name in Snapshot.__struct_fields__})


def answers_to(board: Board) -> ChangeDetection:
    """Publish the answers of telemetry; without a history there is nothing to compare them with."""
    return ChangeDetection(cast("Any", None), board, lambda: Instant(0.0, 0.0), "boot")


def _published(snapshot: Snapshot, now_s: float, **states: object) -> Snapshot:
    return health.derived(replace(snapshot, **states), snapshot.health, now_s)


def probes_listed(specs: tuple[ProbeSpec, ...], refused: Mapping[str, str], now_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        known = {**snapshot.health, "discovery": Health(Level.OK)}
        measure = runs.with_specs(snapshot.measure, specs, refused)
        return _published(snapshot, now_s, measure=measure, health=known)

    return apply


def inventory_taken(inventory: Inventory, now_s: float, now_mono_s: float = 0.0) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        known = gpus.with_devices(snapshot.gpus, inventory.devices)
        measure = runs.with_inventory(snapshot.measure, inventory, known, now_mono_s)
        return _published(snapshot, now_s, gpus=known, measure=measure)

    return apply


def _with_gpu(known: Mapping[str, ListedGpu], uuid: str | None) -> Mapping[str, ListedGpu]:
    if uuid is None or uuid in known:
        return known
    number = max((gpu.number + 1 for gpu in known.values()), default=0)
    return {**known, uuid: ListedGpu(number, "", "", cuda=True)}


def run_finished(
    report: RunReport,
    gpu: str | None,
    now_s: float,
    now_mono_s: float,
    flags: tuple[Flag, ...] = (),
) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        known = _with_gpu(snapshot.gpus, gpu)
        at = Instant(now_s, now_mono_s)
        past = () if flags else _past(report, gpu, now_s)
        measure = runs.with_run(snapshot.measure, known, report, gpu, at, flags, past)
        return _published(snapshot, now_s, gpus=known, measure=measure)

    return apply


def _past(report: RunReport, gpu: str | None, at_s: float) -> tuple[RecentSeries, ...]:
    """What a history of this clean run alone has of its probe."""
    return tuple(
        RecentSeries(
            gpu, report.probe, sample.mode, sample.unit.value, at_s, (0,), (sample.median,)
        )
        for sample in report.samples
    )


def run_skipped(  # noqa: PLR0917  # a skip, and where and when it was
    probe: str,
    reason: Skip,
    now_s: float,
    gpu: str | None = None,
    starving: bool = False,  # noqa: FBT001, FBT002  # as a story writes it
    used_ratio: float | None = None,
) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        known = _with_gpu(snapshot.gpus, gpu)
        key = probe_key(known, probe, gpu)
        measure = runs.with_skip(
            snapshot.measure, key, reason, starving=starving, used_ratio=used_ratio
        )
        return _published(snapshot, now_s, gpus=known, measure=measure)

    return apply


def breaker_changed(standing: BreakerReport, now_s: float) -> Event:
    return lambda snapshot: _published(
        snapshot, now_s, measure=replace(snapshot.measure, breaker=standing)
    )


def child_spawned() -> Event:
    return lambda snapshot: replace(snapshot, measure=_with_child(snapshot.measure))


def _with_child(measure: MeasureState) -> MeasureState:
    return replace(measure, children=measure.children + 1)


def source_answered(answer: Answer, now_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        known, telemetry = answers.with_answer(snapshot, answer)
        return _published(snapshot, now_s, gpus=known, telemetry=telemetry)

    return apply


def says(
    source: str,
    at_s: float = 1.0,
    *,
    gpu: int | None = 0,
    reason: str | None = None,
    **fields: float | str | Absent,
) -> Event:
    """A source of telemetry answers with these fields of a GPU, or of the machine, or fails."""
    readings = tuple(Reading(gpu, field, value, source) for field, value in fields.items())
    level = LEVELS.index(source)
    detail, fix = (None, None) if reason is None else ("d", "f")
    answer = Answer(source, level, at_s, at_s, readings, reason=reason, detail=detail, fix=fix)
    return source_answered(answer, at_s)


def program_started(source: str) -> Event:
    return lambda snapshot: replace(
        snapshot,
        telemetry=answers.with_start(snapshot.telemetry, source),
        measure=_with_child(snapshot.measure),
    )


def platform_read(facts: Mapping[str, str], now_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        platform = {**snapshot.machine.platform, **facts}
        return _published(snapshot, now_s, machine=replace(snapshot.machine, platform=platform))

    return apply


def changed(changes: tuple[ChangeReport, ...], now_s: float) -> Event:
    return lambda snapshot: _published(
        snapshot, now_s, changes=with_changes(snapshot.changes, real(changes))
    )


def remembered(
    expected: Mapping[str, Expected], now_s: float, changes: tuple[ChangeReport, ...] = ()
) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        before = snapshot.changes
        latest = (*real(changes), *before.latest)
        after = replace(before, expected=expected, latest=latest)
        return _published(snapshot, now_s, changes=after)

    return apply


def root_read(report: RootReport | None, detail: str | None, now_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        compared = None if report is None else runs.comparison(snapshot, report)
        root = RootState(report, detail, compared)
        measure = runs.with_container_probe(snapshot, report)
        return _published(snapshot, now_s, root=root, measure=measure)

    return apply


def health_set(  # noqa: PLR0917  # a component, and the fields of Health
    component: str,
    level: Level,
    now_s: float,
    reason: str | None = None,
    detail: str | None = None,
    fix: str | None = None,
) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        before = snapshot.health.get(component)
        value = health.dated(Health(level, reason, detail, fix), before, now_s)
        return replace(snapshot, health={**snapshot.health, component: value})

    return apply


def clock_jumped(offset_s: float, now_s: float, now_mono_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        machine, telemetry = after_jump(snapshot, offset_s, now_mono_s)
        return _published(snapshot, now_s, machine=machine, telemetry=telemetry)

    return apply


def evaluated(
    streams: Mapping[StreamKey, StreamStanding],
    now_s: float,
    units: Mapping[StreamKey, Unit] | None = None,
    gone: tuple[StreamKey, ...] = (),
) -> Event:
    known = units or {}
    fresh = {key: record(one, unit=known.get(key, one.unit)) for key, one in streams.items()}

    def apply(snapshot: Snapshot) -> Snapshot:
        kept = {key: one for key, one in snapshot.streams.items() if key not in gone}
        return _published(snapshot, now_s, streams={**kept, **fresh})

    return apply


def alerts_changed(alerts: tuple[Alert, ...], now_s: float) -> Event:
    return lambda snapshot: _published(
        snapshot, now_s, alerts=replace(snapshot.alerts, alerts=alerts, published_s=now_s)
    )


def sink_delivered(sink: str, state: SinkState, now_s: float) -> Event:
    def apply(snapshot: Snapshot) -> Snapshot:
        sinks = {**snapshot.alerts.sinks, sink: state}
        return _published(snapshot, now_s, alerts=replace(snapshot.alerts, sinks=sinks))

    return apply


def store_measured(size: StoreSize, now_s: float) -> Event:
    return lambda snapshot: _published(snapshot, now_s, store=size)


def certificate_read(expires_s: float | None) -> Event:
    return lambda snapshot: replace(
        snapshot, http=replace(snapshot.http, certificate_expires_s=expires_s)
    )


def turned_away(counts: Mapping[Refused, int]) -> Event:
    return lambda snapshot: replace(snapshot, http=with_refusals(snapshot.http, counts))
