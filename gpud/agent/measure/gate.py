"""May a due run start now? The person at the machine comes first, and what is not known goes.

Pure: the settings, the moment and what is known of it in, one answer out. A GPU's reading that is
absent holds nothing back: WSL2 withholds several, and a gate that stays shut would measure nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpud.agent.measure.conditions import HOT
from gpud.agent.measure.flags import BUSY_RATIO
from gpud.core import clock
from gpud.core.sample import Backend, Pace, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.measure.conditions import Conditions
    from gpud.core.sections import GateSettings

ECHO_S = 1.2
"""So long after our own work a GPU still looks busy with it: NVML's utilisation looks back over
up to a second, and a reading takes its time."""

PRESSING = frozenset({Skip.GPU_HOT, Skip.VRAM_SHORT, Skip.GPU_BUSY})
"""Reasons that nobody chose: a probe they keep away for hours is told of."""

CHOSEN = frozenset({Skip.QUIET_HOURS, Skip.ON_BATTERY})
"""Reasons that somebody chose: what was put off before them is forgotten."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which run wants to start, since when, and on what. Units: CLOCK_MONOTONIC seconds, bytes."""

    backend: Backend
    pace: Pace
    since_s: float
    need_bytes: int = 0  # of GPU memory, as its last run took it
    own_ended_s: float | None = None  # when gpud itself last worked on this GPU


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by the monotonic clock and by the clock on the wall."""

    mono_s: float
    local_min: int  # minute of the local day
    resumed_s: float | None = None  # monotonic: when the machine came back from a long pause


@dataclass(frozen=True, slots=True)
class Go:
    """The run may start."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now because of ``reason``; ask again at ``until_s``, which is later than the moment.

    ``ours``: the GPU may only look busy, with what gpud itself has just done there. Such a wait is
    short, and nothing else is to be started during it or it begins anew.
    """

    reason: Skip
    until_s: float
    ours: bool = False


Answer: TypeAlias = Go | Wait | Skip
"""A ``Skip`` is the answer no, by its reason."""


def decide(gate: GateSettings, asked: Asked, seen: Conditions, moment: Moment) -> Answer:
    """Let a run start, have it wait for a better moment, or leave it out this time.

    The small CPU probe costs nobody anything and always goes. What lasts for hours (quiet hours, a
    battery) is never waited for; the rest is by large probes, up to ``wait_for_idle_s``. However
    often a run was left out, the reason for it holds: a game is not disturbed to please a graph.
    """
    lasting = _lasting(gate, asked, seen, moment)
    if lasting is not None:
        return lasting
    trouble = next(_troubles(gate, asked, seen, moment), None)
    if trouble is None:
        return Go()
    reason, over_s = trouble
    if reason is Skip.GPU_BUSY and over_s is not None:
        return Wait(reason, over_s, ours=True)
    last_s = asked.since_s + (gate.wait_for_idle_s if asked.pace is Pace.LARGE else 0.0)
    if moment.mono_s >= last_s or (over_s is not None and over_s > last_s):
        return reason
    until_s = moment.mono_s + gate.look_again_s if over_s is None else over_s
    return Wait(reason, min(until_s, last_s))


def _lasting(gate: GateSettings, asked: Asked, seen: Conditions, moment: Moment) -> Skip | None:
    """Name what nobody waits for the end of."""
    large = asked.pace is Pace.LARGE
    if asked.backend is Backend.CPU and not large:
        return None
    if clock.quiet(gate.quiet_hours, moment.local_min):
        return Skip.QUIET_HOURS
    if seen.ac is False and (gate.on_battery == "none" or (large and gate.on_battery == "small")):
        return Skip.ON_BATTERY
    return None


def _troubles(
    gate: GateSettings, asked: Asked, seen: Conditions, moment: Moment
) -> Iterator[tuple[Skip, float | None]]:
    """Name what speaks against starting on the GPU, worst first, and when it is over if known."""
    if asked.backend is Backend.CPU:
        return
    if moment.resumed_s is not None and moment.mono_s < moment.resumed_s + gate.resume_rest_s:
        yield Skip.RESUMED, moment.resumed_s + gate.resume_rest_s
    hot = seen.temperature_celsius is not None and seen.temperature_celsius > gate.hot_celsius
    if hot or HOT & (seen.throttle_reasons or frozenset()):
        yield Skip.GPU_HOT, None
    free = seen.memory_free_bytes
    if free is not None and free < max(gate.vram_free_min_bytes, asked.need_bytes):
        yield Skip.VRAM_SHORT, None
    used = seen.utilization_gpu_ratio
    if used is None:
        return
    echo_over_s = -math.inf if asked.own_ended_s is None else asked.own_ended_s + ECHO_S
    if used > min(gate.busy_ratio, BUSY_RATIO) and moment.mono_s < echo_over_s:
        yield Skip.GPU_BUSY, echo_over_s
    elif used > gate.busy_ratio:
        yield Skip.GPU_BUSY, None
