"""Snapshot -> the document of /api/v1/status, agent.json and ``gpud status --json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpud.core import recent, telemetry
from gpud.core.health import Level
from gpud.core.ledger_state import body
from gpud.core.sample import SCHEMA_VERSION, plain
from gpud.core.severity import SEVERITY
from gpud.core.snapshot import overall
from gpud.core.standings import number, usual

if TYPE_CHECKING:
    from gpud.core.clock import Instant
    from gpud.core.sample import Failure
    from gpud.core.snapshot import ProbeKey, ProbeState, Snapshot
    from gpud.core.streams import StreamKey
    from gpud.core.telemetry import Telemetry


def document(snapshot: Snapshot, *, now: Instant) -> dict[str, Any]:
    """Give everything a person or a program may want to know, as plain JSON data.

    Units: names carry them; ``*_s`` that are moments are Unix seconds.
    """
    root = snapshot.root
    return {
        "schema_version": SCHEMA_VERSION,
        "version": snapshot.version,
        "state": Level(overall(snapshot)).name.lower(),
        "written_s": now.wall_s,
        "started_s": snapshot.started_s,
        "platform": dict(snapshot.platform),
        "health": {name: asdict(health) for name, health in snapshot.health.items()},
        "root": asdict(root) if root is not None else None,
        "containers": asdict(snapshot.containers) if snapshot.containers is not None else None,
        "gpus": {uuid: asdict(gpu) for uuid, gpu in snapshot.gpus.items()},
        "breaker": asdict(snapshot.breaker) if snapshot.breaker is not None else None,
        "changes": [asdict(change) for change in snapshot.changes],
        "expected": {uuid: asdict(one) for uuid, one in snapshot.expected.items()},
        "cuda": asdict(snapshot.inventory) if snapshot.inventory is not None else None,
        "probes": [_probe(key, state) for key, state in snapshot.probes.items()],
        "put_off": [
            {"probe": key.probe, "gpu": key.gpu, **asdict(value)}
            for key, value in snapshot.put_off.items()
        ],
        "streams": [_stream(snapshot, key) for key in sorted(snapshot.streams, key=_order)],
        "recent": recent.document(snapshot.recent),
        "telemetry": _telemetry(snapshot.telemetry, now),
        "alerts": [body(alert) for alert in snapshot.alerts],
        "sinks": {name: asdict(state) for name, state in snapshot.sinks.items()},
        "store": asdict(snapshot.store) if snapshot.store is not None else None,
        "counters": {
            "runs": dict(snapshot.runs),
            "failures": {f"{p}:{why}": n for (p, why), n in snapshot.failures.items()},
            "skips": {f"{p}:{why}": n for (p, why), n in snapshot.skips.items()},
            "flagged": {f"{p}:{flag}": n for (p, flag), n in snapshot.flagged.items()},
            "changes": dict(snapshot.change_counts),
            "clock_jumps": snapshot.clock_jumps,
            "paused_s": snapshot.paused_s,
            "children": snapshot.children,
            "gpu_seconds": snapshot.gpu_seconds,
            "vram_peak_bytes": snapshot.vram_peak_bytes,
            "pinned_peak_bytes": snapshot.pinned_peak_bytes,
        },
    }


def _probe(key: ProbeKey, state: ProbeState) -> dict[str, Any]:
    return {
        "probe": key.probe,
        "gpu": key.gpu,
        "backend": state.backend,
        "last_success_s": state.last_success_s,
        "duration_s": state.duration_s,
        "failure": _failure(state.failure) if state.failure is not None else None,
        "missing": [asdict(m) for m in state.report.missing] if state.report else [],
        "conditions": dict(state.report.conditions) if state.report else {},
        "flags": list(state.flags),
        "curve": [asdict(point) for point in state.report.curve] if state.report else [],
        "samples": [
            {name: value for name, value in asdict(sample).items() if name != "buckets"}
            for sample in state.samples
        ],
    }


def _stream(snapshot: Snapshot, key: StreamKey) -> dict[str, Any]:
    """How one stream stands. ``gpu`` is the GPU's number, ``uuid`` its name; None for the CPU.

    ``usual`` and ``level`` are in ``unit``, ``slowdown`` is 1.25 for 25 % slower; None: not known.
    """
    standing = snapshot.streams[key]
    return {
        "gpu": number(snapshot, key),
        "uuid": key.gpu,
        "probe": key.probe,
        "mode": key.mode,
        "version": key.version,
        "on_battery": key.on_battery,
        "unit": snapshot.units.get(key),
        "usual": usual(standing),
        **asdict(standing),
    }


def _order(key: StreamKey) -> tuple[Any, ...]:
    return (key.gpu or "", key.probe, key.mode, key.version, key.on_battery)


def _failure(failure: Failure) -> dict[str, Any]:
    return {**asdict(failure), "severity": SEVERITY[failure.reason].name.lower()}


def _telemetry(said: Telemetry, now: Instant) -> dict[str, Any]:
    taken = [answer.taken_s for answer in telemetry.ranked(said) if answer.holds(now.mono_s)]
    return {
        "level": telemetry.LEVELS[telemetry.level(said, now.mono_s)],
        "taken_s": taken[0] if taken else None,  # by the best source
        "sources": {
            answer.source: {
                "level": answer.level,
                "up": answer.holds(now.mono_s),
                "reason": answer.reason,
                "detail": answer.detail,
                "fix": answer.fix,
                "taken_s": answer.taken_s,
                "duration_s": answer.duration_s,
                "last_success_s": said.last_success_s.get(answer.source),
                "failures": {
                    reason: count
                    for (source, reason), count in said.failures.items()
                    if source == answer.source
                },
            }
            for answer in telemetry.ranked(said)
        },
        "readings": [plain(reading) for reading in telemetry.current(said, now.mono_s)],
        "program_starts": dict(said.starts),
    }
