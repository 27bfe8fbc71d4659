"""How five streams of one GPU and the CPU stand, made by hand."""

from __future__ import annotations

from typing import Any

from gpud.agent.regression.detector import (
    Alarm,
    ChangeKind,
    DriverVerdict,
    Effect,
    StreamStanding,
    VerdictState,
)
from gpud.core.sample import Unit
from gpud.core.streams import StreamKey

OF = {
    "launch": ("submit", Unit.SECONDS),
    "triad": ("triad", Unit.BYTES_PER_SECOND),
    "nbody": ("nbody", Unit.FLOPS_PER_SECOND),
}


def key(gpu: str, probe: str, *, on_battery: bool = False) -> StreamKey:
    return StreamKey(gpu, probe, OF[probe][0], on_battery=on_battery)


CALL = StreamKey(None, "cpu_call", "call")


def units(gpu: str) -> dict[StreamKey, Unit]:
    """The unit of each of the streams."""
    made = {key(gpu, probe): unit for probe, (_, unit) in OF.items()}
    return {**made, key(gpu, "nbody", on_battery=True): Unit.FLOPS_PER_SECOND, CALL: Unit.SECONDS}


def standing(*open_alarms: Alarm, seen: int, judged: int, **more: Any) -> StreamStanding:
    """A stream at its usual speed, of whose samples the first few settled; ``more`` differs."""
    values: dict[str, Any] = {
        "refused": {},
        "set_aside": {"settling": seen - judged} if seen > judged else {},
        "last_judged_s": None,
        "level": None,
        "slowdown": None,
        "slow_state_ratio": 0.0 if judged else None,
        "verdict": None,
        **more,
    }
    return StreamStanding(seen, judged, open=open_alarms, **values)


def slower(now_s: float) -> Alarm:
    """A driver update half an hour before that cost 12 %."""
    return Alarm(
        kind=ChangeKind.DRIVER,
        worse=True,
        seq=1024,
        at_s=now_s - 1800,
        since_seq=1000,
        since_s=now_s - 3600,
        effect=Effect(1.12, 1.102, 1.139),
        before=4.4e-6,
        after=4.928e-6,
        old_driver="566.36",
        new_driver="572.16",
        samples=25,
        reference=1000,
    )


def streams(gpu: str, now_s: float) -> dict[StreamKey, StreamStanding]:
    """One that regressed, one that learns a driver, one on two power sources, and the CPU's."""
    alarm = slower(now_s)
    regressed = DriverVerdict(
        state=VerdictState.REGRESSED,
        old_driver="566.36",
        new_driver="572.16",
        since_s=alarm.since_s,
        samples=25,
        reference=1000,
        effect=alarm.effect,
        limit=0.065,
    )
    learning = DriverVerdict(
        VerdictState.LEARNING, "566.36", "572.16", alarm.since_s, samples=3, reference=900
    )
    return {
        key(gpu, "launch"): standing(
            alarm,
            seen=1060,
            judged=1030,
            refused={"not_positive": 1},
            set_aside={"busy": 20, "settling": 9},
            last_judged_s=now_s - 60,
            level=4.93e-6,
            slowdown=1.125,
            slow_state_ratio=0.05,
            verdict=regressed,
        ),
        key(gpu, "triad"): standing(
            seen=903,
            judged=903,
            last_judged_s=now_s - 600,
            level=4.6e11,
            slowdown=1.0,
            verdict=learning,
        ),
        key(gpu, "nbody", on_battery=True): standing(seen=3, judged=0),
        key(gpu, "nbody"): standing(
            seen=40, judged=37, last_judged_s=now_s - 7200, level=1.5e13, slowdown=1.01
        ),
        CALL: standing(
            seen=1060, judged=1057, last_judged_s=now_s - 60, level=4e-7, slowdown=0.998
        ),
    }
