"""Health of the GPU (does its driver answer?), of its bus by the kernel's log, and of dockerd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.measure.breaker import State
from gpud.agent.state.snapshot import Snapshot, with_health, without_health
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.dxg import RECENT_S, DxgKind
from gpud.core.health import Level
from gpud.core.report import Owner

if TYPE_CHECKING:
    from gpud.agent.measure.breaker import Standing
    from gpud.core.report import DockerdReport, KernelLogReport

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
    words = _words(standing, _kernel_words(snapshot, standing))
    return with_health(snapshot, "gpu", level, now_s, reason, words, standing.fix)


def with_kernel_log(snapshot: Snapshot, report: KernelLogReport | None, now_s: float) -> Snapshot:
    """Set the health of ``dxg``; none while the kernel's log cannot be read."""
    after = with_breaker(snapshot, now_s)  # its evidence may be new
    if report is None or report.unreadable is not None:
        return without_health(after, "dxg")
    words = f"the kernel's log: {report.last.words}" if report.last is not None else None
    if lost := report.recent.get(DxgKind.MESSAGE_LOST, 0):
        level = Level.FAILED if lost >= REPEATED else Level.DEGRADED
        reason, situation = str(DxgKind.MESSAGE_LOST), Situation.CHANNEL
    elif report.recent.get(DxgKind.NOT_RESIDENT, 0):
        level, reason, situation = Level.DEGRADED, str(DxgKind.NOT_RESIDENT), Situation.FULL
    elif report.unusual:
        level, reason, situation = Level.DEGRADED, "ioctl_failures", Situation.CHANNEL_PERHAPS
        words = "the kernel's log has many failed calls of dxgkrnl that are not usual"
    else:
        return with_health(after, "dxg", Level.OK, now_s)
    fix = advice.words(situation, advice.of(snapshot.platform))
    return with_health(after, "dxg", level, now_s, reason, words, fix)


def with_dockerd(snapshot: Snapshot, dockerd: DockerdReport, now_s: float) -> Snapshot:
    """Set the health of ``dockerd``; none while root does not know whether it is up."""
    if dockerd.up is None:
        return without_health(snapshot, "dockerd")
    if dockerd.up:
        level = Level.OK if dockerd.reason is None else Level.DEGRADED
    else:
        # A machine that has no dockerd and does not manage one misses nothing.
        absent = dockerd.owner is Owner.NONE and dockerd.policy == "observe"
        level = Level.DEGRADED if dockerd.state == "starting" or absent else Level.FAILED
    reason = dockerd.reason or (None if dockerd.up else dockerd.state)
    return with_health(snapshot, "dockerd", level, now_s, reason, dockerd.detail, dockerd.fix)


def _kernel_words(snapshot: Snapshot, standing: Standing) -> str | None:
    """Give the kernel's last word of trouble, where it may be about this hang."""
    said = snapshot.root.kernel_log if snapshot.root is not None else None
    if said is None or said.last is None or standing.since_s is None:
        return None
    return said.last.words if said.last.at_s >= standing.since_s - RECENT_S else None


def _words(standing: Standing, kernel: str | None) -> str:
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
