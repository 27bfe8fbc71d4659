"""How a GPU that hangs, and what the kernel says of its bus, enter a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.measure.breaker import State
from gpud.agent.state.snapshot import Snapshot, with_health
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.dxg import RECENT_S, Kind
from gpud.core.health import Level

if TYPE_CHECKING:
    from gpud.agent.measure.breaker import Standing
    from gpud.core.report import KernelLogReport

REPEATED: Final = 4
"""Lines from which on it is the channel: one lost message makes up to three, one for each function
that it passes through.
"""

BREAKER: Final = {
    State.OPEN: (Level.FAILED, "hung"),
    State.HALF_OPEN: (Level.DEGRADED, "tried_again"),
    State.STUCK: (Level.FAILED, "stuck"),
}


def with_breaker(snapshot: Snapshot, now_s: float) -> Snapshot:
    """Set the health of ``gpu``: whether the driver gives answers at all."""
    standing = snapshot.breaker
    if standing is None:
        return snapshot
    if standing.state is State.CLOSED:
        return with_health(snapshot, "gpu", Level.OK, now_s)
    level, reason = BREAKER[standing.state]
    return with_health(
        snapshot,
        "gpu",
        level,
        now_s,
        reason=reason,
        detail=_told(standing, _kernel_words(snapshot, standing)),
        fix=standing.fix,
    )


def with_kernel_log(snapshot: Snapshot, said: KernelLogReport | None, now_s: float) -> Snapshot:
    """Set the health of ``dxg``; without a word from the kernel there is none to set."""
    after = with_breaker(snapshot, now_s)  # its evidence may be new
    if said is None or said.unreadable is not None:
        known = {name: value for name, value in after.health.items() if name != "dxg"}
        return replace(after, health=known)
    level, reason, what = _judged(said)
    words = f"the kernel's log: {said.last.words}" if said.last is not None else None
    if reason == "ioctl_failures":
        words = "the kernel's log has many failed calls of dxgkrnl that are not usual"
    return with_health(
        after,
        "dxg",
        level,
        now_s,
        reason=reason,
        detail=words if reason is not None else None,
        fix=advice.words(what, advice.of(snapshot.platform)) if what is not None else None,
    )


def _judged(said: KernelLogReport) -> tuple[Level, str | None, Situation | None]:
    lost = said.recent.get(Kind.MESSAGE_LOST, 0)
    if lost:
        level = Level.FAILED if lost >= REPEATED else Level.DEGRADED
        return level, str(Kind.MESSAGE_LOST), Situation.CHANNEL
    if said.recent.get(Kind.NOT_RESIDENT, 0):
        return Level.DEGRADED, str(Kind.NOT_RESIDENT), Situation.FULL
    if said.unusual:
        return Level.DEGRADED, "ioctl_failures", Situation.CHANNEL_PERHAPS
    return Level.OK, None, None


def _kernel_words(snapshot: Snapshot, standing: Standing) -> str | None:
    """Give the kernel's last word of trouble, where it may be about this hang."""
    said = snapshot.root.kernel_log if snapshot.root is not None else None
    if said is None or said.last is None or standing.since_s is None:
        return None
    return said.last.words if said.last.at_s >= standing.since_s - RECENT_S else None


def _told(standing: Standing, kernel: str | None) -> str:
    """Put together what hung, how often, and when it is tried again."""
    parts = [standing.detail or standing.what or "a driver call hung"]
    if standing.hangs > 1:
        parts.append(f"{standing.hangs} times in a row")
    if standing.state is State.STUCK:
        parts.append("no GPU work starts until that process is gone")
    elif standing.state is State.HALF_OPEN:
        parts.append("one run is let through at a time, and that of what hung decides")
    elif standing.retry_s is not None and standing.since_s is not None:
        rest_s = standing.retry_s - standing.since_s
        parts.append(f"tried again {rest_s / 60:.0f} min after that")
    if kernel is not None:
        parts.append(f"the kernel's log: {kernel}")
    return "; ".join(parts)
