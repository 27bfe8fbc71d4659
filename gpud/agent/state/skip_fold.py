"""How runs that were left out make the next snapshot, and how a run that was not ends that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpud.agent.state.snapshot import ProbeKey, PutOff, Snapshot, with_health
from gpud.core import gpus
from gpud.core.health import Level

if TYPE_CHECKING:
    from gpud.agent.state.events import RunSkipped

FIX = "close what uses the GPU for a minute, or change [gate] in gpud.toml"


def with_skip(snapshot: Snapshot, event: RunSkipped) -> Snapshot:
    """Count a run that was not started, by probe and reason and in a row."""
    known = snapshot.gpus if event.gpu is None else gpus.with_uuid(snapshot.gpus, event.gpu)
    key = ProbeKey(event.probe, None if event.gpu is None else known[event.gpu].number)
    before = snapshot.put_off.get(key)
    in_a_row = PutOff(
        1 if before is None else before.count + 1,
        event.reason,
        event.starving,
        event.utilization_gpu_ratio,
    )
    counted = (event.probe, event.reason)
    after = replace(
        snapshot,
        gpus=known,
        skips={**snapshot.skips, counted: snapshot.skips.get(counted, 0) + 1},
        put_off={**snapshot.put_off, key: in_a_row},
    )
    return gate_health(after, event.now_s)


def with_run(snapshot: Snapshot, key: ProbeKey, now_s: float) -> Snapshot:
    """End the row of skips of a probe that has run, those without a GPU included."""
    ended = {key, ProbeKey(key.probe, None)}
    if not ended & snapshot.put_off.keys():
        return snapshot
    left = {other: put_off for other, put_off in snapshot.put_off.items() if other not in ended}
    return gate_health(replace(snapshot, put_off=left), now_s)


def gate_health(snapshot: Snapshot, now_s: float) -> Snapshot:
    """Say which probes have been put off for too long; say nothing before one was."""
    starving = {key: value for key, value in snapshot.put_off.items() if value.starving}
    if not starving:
        known = "gate" in snapshot.health
        return with_health(snapshot, "gate", Level.OK, now_s) if known else snapshot
    words = [
        f"{key} was left out {value.count} times in a row, now for {value.reason}"
        for key, value in sorted(starving.items(), key=lambda item: str(item[0]))
    ]
    return with_health(
        snapshot,
        "gate",
        Level.DEGRADED,
        now_s,
        reason="starved",
        detail="; ".join(words),
        fix=FIX,
    )
