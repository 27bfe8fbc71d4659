"""Runs in the snapshot: the figures, failures and counts of each probe, and its skips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.state import recent
from gpud.agent.state.severity import LEVEL, SEVERITY
from gpud.agent.state.snapshot import ProbeKey, ProbeState, PutOff, Snapshot, with_health
from gpud.core import containers, gpus, stats
from gpud.core.health import Level

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping
    from typing import TypeVar

    from gpud.agent.state.events import RunFinished, RunSkipped
    from gpud.core.sample import Buckets, RunReport

    K = TypeVar("K", bound=Hashable)

FIX: Final = "close what uses the GPU for a minute, or change [gate] in gpud.toml"


def with_run(snapshot: Snapshot, event: RunFinished) -> Snapshot:
    """Take in a finished run: its figures or its failure, and the counts."""
    report, now_s = event.report, event.now_s
    known = snapshot.gpus if event.gpu is None else gpus.with_uuid(snapshot.gpus, event.gpu)
    gpu = None if event.gpu is None else known[event.gpu].number
    key = ProbeKey(report.probe, gpu)
    before = snapshot.probes.get(key, ProbeState(report.backend))
    failure = report.failure
    state = ProbeState(
        backend=report.backend,
        samples=report.samples if failure is None else (),
        report=report,
        failure=failure,
        last_success_s=now_s if failure is None else before.last_success_s,
        finished_mono_s=event.now_mono_s,
        duration_s=report.duration_s or None,  # 0 where no child lived to report it
        flags=event.flags,
    )
    failures = () if failure is None else ((report.probe, failure.reason),)
    after = replace(
        snapshot,
        gpus=known,
        probes={**snapshot.probes, key: state},
        runs=_counted(snapshot.runs, (report.probe,)),
        failures=_counted(snapshot.failures, failures),
        flagged=_counted(snapshot.flagged, ((report.probe, flag) for flag in event.flags)),
        latencies=_accumulated(snapshot.latencies, gpu, report),
        gpu_seconds=snapshot.gpu_seconds + (report.gpu_seconds or 0.0),
    )
    if gpu is not None:
        after = replace(
            after,
            vram_peak_bytes=_most(snapshot.vram_peak_bytes, report.vram_peak_bytes),
            pinned_peak_bytes=_most(snapshot.pinned_peak_bytes, report.pinned_peak_bytes),
        )
    after = recent.with_points(after, recent.points(report, event.gpu, now_s, event.flags))
    ended = {key, ProbeKey(key.probe, None)}  # skips of before a GPU was chosen included
    if ended & after.put_off.keys():
        left = {key: value for key, value in after.put_off.items() if key not in ended}
        after = with_gate_health(replace(after, put_off=left), now_s)
    return with_probe_health(after, now_s)


def with_skip(snapshot: Snapshot, event: RunSkipped) -> Snapshot:
    """Count a run that was not started, by probe and reason and in a row."""
    known = snapshot.gpus if event.gpu is None else gpus.with_uuid(snapshot.gpus, event.gpu)
    key = ProbeKey(event.probe, None if event.gpu is None else known[event.gpu].number)
    before = snapshot.put_off.get(key)
    count = 1 if before is None else before.count + 1
    row = PutOff(count, event.reason, event.starving, event.utilization_gpu_ratio)
    after = replace(
        snapshot,
        gpus=known,
        skips=_counted(snapshot.skips, ((event.probe, event.reason),)),
        put_off={**snapshot.put_off, key: row},
    )
    return with_gate_health(after, event.now_s)


def of_gpus(snapshot: Snapshot, present: Collection[int]) -> Snapshot:
    """Drop the series of GPUs that are not present, by number."""
    here = {None, *present}
    return replace(
        snapshot,
        probes={key: state for key, state in snapshot.probes.items() if key.gpu in here},
        latencies={key: value for key, value in snapshot.latencies.items() if key[0] in here},
        put_off={key: value for key, value in snapshot.put_off.items() if key.gpu in here},
    )


def with_gate_health(snapshot: Snapshot, now_s: float) -> Snapshot:
    """Set the health of ``gate``: probes put off for too long; none before one was."""
    starving = {key: value for key, value in snapshot.put_off.items() if value.starving}
    if not starving:
        known = "gate" in snapshot.health
        return with_health(snapshot, "gate", Level.OK, now_s) if known else snapshot
    words = "; ".join(
        f"{key} was left out {value.count} times in a row, now for {value.reason}"
        for key, value in sorted(starving.items(), key=lambda item: str(item[0]))
    )
    return with_health(snapshot, "gate", Level.DEGRADED, now_s, "starved", words, FIX)


def with_probe_health(snapshot: Snapshot, now_s: float) -> Snapshot:
    """Set the health of ``probes`` by the worst failure of a last run."""
    failing = {
        key: state.failure
        for key, state in snapshot.probes.items()
        if state.failure is not None and key.probe != containers.PROBE  # that has its own health
    }
    if not failing:
        return with_health(snapshot, "probes", Level.OK, now_s)
    named = sorted(failing.items(), key=lambda item: str(item[0]))
    words = "; ".join(f"{key}: {failure.detail}" for key, failure in named)
    worst = max(failing.values(), key=lambda failure: SEVERITY[failure.reason])
    level = LEVEL[SEVERITY[worst.reason]]
    return with_health(snapshot, "probes", level, now_s, worst.reason, words, worst.advice)


def _counted(counts: Mapping[K, int], keys: Iterable[K]) -> Mapping[K, int]:
    after = dict(counts)
    for key in keys:
        after[key] = after.get(key, 0) + 1
    return after


def _most(before: int | None, now: int | None) -> int | None:
    return max(before or 0, now) if now is not None else before


def _accumulated(
    totals: Mapping[tuple[int, str], Buckets], gpu: int | None, report: RunReport
) -> Mapping[tuple[int, str], Buckets]:
    if report.failure is not None or gpu is None:
        return totals
    grown = dict(totals)
    for sample in report.samples:
        if (buckets := sample.buckets) is not None:
            key = (gpu, sample.mode)
            grown[key] = stats.merged(grown[key], buckets) if key in grown else buckets
    return grown
