"""Alarms made by hand."""

from __future__ import annotations

from gpud.agent.alerts.slowdowns import AlarmFinding
from gpud.agent.regression.detector import Alarm, ChangeKind, Effect, StreamStanding
from gpud.core.alerts import Cause
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey
from tests import standings

NOW_S = 1_763_000_000.0
HOUR_S = 3600.0
UPDATE = (Cause("driver_version", "572.16", "576.02"),)
GPUS = {"GPU-1": "GPU 0 (NVIDIA GeForce RTX 4070)", "GPU-2": "GPU 1 (NVIDIA T400)"}


def alarm(
    kind: ChangeKind = ChangeKind.DRIVER,
    ratio: float = 1.12,
    *,
    before: float = 12.4e-6,
    seq: int = 1024,
    since_s: float = NOW_S - 1500,
    at_s: float = NOW_S,
    worse: bool = True,
    closes: tuple[int, ...] = (),
    drivers: tuple[str, str] | None = None,
) -> Alarm:
    old, new = drivers or (("572.16" if kind is ChangeKind.DRIVER else "576.02"), "576.02")
    return Alarm(
        kind=kind,
        worse=worse,
        seq=seq,
        at_s=at_s,
        since_seq=seq - 25,
        since_s=since_s,
        effect=Effect(ratio, ratio * 0.98, ratio * 1.02),
        before=before,
        after=before * ratio,
        old_driver=old,
        new_driver=new,
        samples=25,
        reference=1000,
        closes=closes,
    )


def finding(
    mode: str = "submit",
    item: Alarm | None = None,
    *,
    probe: str = "launch",
    gpu: str | None = "GPU-1",
    unit: Unit = Unit.SECONDS,
    changed: tuple[Cause, ...] | None = None,
    causes: tuple[Cause, ...] = (),
) -> AlarmFinding:
    item = item or alarm()
    if changed is None:
        changed = UPDATE if item.kind is ChangeKind.DRIVER else ()
    return AlarmFinding(StreamKey(gpu, probe, mode), unit, item, 1000, changed, causes)


def grave(mode: str = "submit", *, gpu: str | None = "GPU-1") -> AlarmFinding:
    """Return an update's alarm that needs no confirmation."""
    return finding(mode, alarm(ratio=1.6), gpu=gpu)


def standing(
    *open_alarms: Alarm, seen: int = 5000, judged: int = 5000, slowdown: float | None = 1.12
) -> StreamStanding:
    known = {"set_aside": {}, "level": 13e-6, "slowdown": slowdown, "last_judged_s": NOW_S}
    return standings.standing(*open_alarms, seen=seen, judged=judged, **known)
