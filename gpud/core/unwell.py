"""Parts of gpud and of the machine that stay failed: what is told of them, and what ends it.

A part that fails and begins again all the time is never failed for long, so it counts as failed
until it is well, or has not failed for a minute. Pure: time comes in by the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.alerts import UNWELL, Alert, Severity
from gpud.core.alertwords import one_line, plain
from gpud.core.health import Level
from gpud.core.signs import CONTAINER, CUDA, NVML, PROBE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpud.core.clock import Instant
    from gpud.core.health import Health

STAYS_S: Final = 120.0
RESTS_S: Final = 60.0
PATIENCE_S: Final = 900.0
"""For so long nothing is said of a part whose function may yet be told as lost."""

COVERED: Final[Mapping[str, frozenset[str]]] = {
    CUDA: frozenset({"cuda", "devices", "gpu", "probes", "nvml"}),
    PROBE: frozenset({"probes"}),
    NVML: frozenset({"nvml"}),
    CONTAINER: frozenset({"containers"}),
}
"""Components of which the loss of a function says it all, by its kind."""


class Since(NamedTuple):
    """The first and the last moment at which a component was seen failed."""

    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class Unwell:
    """Components that fail, and those that were told of. A restart begins with neither."""

    failed: Mapping[str, Since] = field(default_factory=dict)
    told: frozenset[str] = frozenset()


def step(
    state: Unwell,
    health: Mapping[str, Health],
    now: Instant,
    *,
    lost: Collection[str] = (),
    pending: Collection[str] = (),
) -> Unwell:
    """Look at the health of all components.

    ``lost`` and ``pending`` are kinds of functions: those whose loss is told, and those of which it
    is not decided yet.
    """
    failed = {}
    for name, one in health.items():
        before = state.failed.get(name)
        if one.level is Level.FAILED:
            failed[name] = Since(now.mono_s if before is None else before.first_s, now.mono_s)
        elif one.level > Level.OK and before is not None and now.mono_s - before.last_s < RESTS_S:
            failed[name] = before
    said = {name for kind in lost for name in COVERED.get(kind, ())}
    undecided = {name for kind in pending for name in COVERED.get(kind, ())}
    told = {
        name
        for name, since in failed.items()
        if name not in said
        and (name in state.told or now.mono_s - since.first_s >= _wait_s(name, undecided))
    }
    return Unwell(failed, frozenset(told))


def alert(component: str, health: Health, now_s: float) -> Alert:
    """Put a component that stays failed into words."""
    detail = plain(health.detail or health.reason or "it does not say why")
    return Alert(
        name=UNWELL,
        severity=Severity.WARNING,
        labels={"component": plain(component)},
        summary=one_line(f"{component} has failed: {detail}"),
        description=f"{plain(component)} has been failed for two minutes or longer: {detail}",
        starts_s=now_s,
        updated_s=now_s,
        fix=None if health.fix is None else plain(health.fix),
    )


def _wait_s(component: str, undecided: Collection[str]) -> float:
    return PATIENCE_S if component in undecided else STAYS_S
