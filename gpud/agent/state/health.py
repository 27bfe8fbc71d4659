"""Health of every component that follows from the states of the subjects.

Each function gives the health of one component, or None while nothing is known of it. Components
that report themselves (``store``, ``http``, ``alerts`` ...) use ``Board.set_health``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gpud.agent.measure.breaker import State
from gpud.agent.state import containers, presence
from gpud.agent.state.telemetry import nvml
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.health import Health, Level
from gpud.core.report import RECENT_S, DxgKind, Owner
from gpud.core.sample import Reason
from gpud.units import plural
from gpud.words import because

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.state.snapshot import Snapshot
    from gpud.document.machine import BreakerReport

REPEATED: Final = 4
"""From so many lines on the channel itself is broken: one lost message makes up to three lines, one
for each function that it passes through.
"""
GATE_FIX: Final = (
    "close what uses the GPU until the next round of probes, or change [gate] in gpud.toml"
)
BREAKER: Final[dict[str, tuple[Level, str]]] = {
    State.OPEN: (Level.FAILED, "hung"),
    State.HALF_OPEN: (Level.DEGRADED, "tried_again"),
    State.STUCK: (Level.FAILED, "stuck"),
}


def derived(snapshot: Snapshot, before: Mapping[str, Health], now_s: float) -> Snapshot:
    """Return the snapshot with what follows from its states: expected GPUs, and each health.

    ``since_s`` stays that of ``before`` while level and reason stay the same.
    """
    expected = presence.expected(snapshot, now_s)
    changes = structs.replace(snapshot.changes, expected=expected)
    snapshot = structs.replace(snapshot, changes=changes)
    current = dict(snapshot.health)
    for component, health in _each(snapshot):
        if health is None:
            current.pop(component, None)
        else:
            current[component] = health
    dated_health = {
        name: dated(health, before.get(name), now_s) for name, health in current.items()
    }
    return structs.replace(snapshot, health=dated_health)


def dated(now: Health, before: Health | None, now_s: float) -> Health:
    """Return a health with the moment since when it is so, and with words where it is not well."""
    same = before is not None and (before.level, before.reason) == (now.level, now.reason)
    since_s = before.since_s if before is not None and same else now_s
    if now.level is Level.OK or now.detail:
        return structs.replace(now, since_s=since_s)
    words = (now.reason or "no reason is known").replace("_", " ")
    return structs.replace(now, detail=words, since_s=since_s)


def _each(snapshot: Snapshot) -> Iterator[tuple[str, Health | None]]:
    nothing = presence.nothing_expected(snapshot)
    devices = presence.devices(snapshot, nothing)
    yield "devices", devices
    yield "cuda", presence.cuda(snapshot, nothing, devices)
    yield "nvml", nvml(snapshot, nothing)
    yield "probes", _probes(snapshot)
    yield "gate", _gate(snapshot)
    yield "gpu", _gpu(snapshot)
    yield "root", _root(snapshot)
    yield "dockerd", _dockerd(snapshot)
    yield "dxg", _kernel_log(snapshot)
    yield "containers", _containers(snapshot)


def _probes(snapshot: Snapshot) -> Health | None:
    """Return the health of ``probes`` by the worst failure of a last run; None before a run."""
    if not any(n for name, n in snapshot.measure.runs.items() if name != containers.PROBE):
        return None
    failing = {
        key: failure
        for key, state in snapshot.measure.probes.items()
        if (failure := state.report.failure) and key.probe != containers.PROBE  # has its own health
    }
    if not failing:
        return Health(Level.OK)
    named = sorted(failing.items(), key=lambda item: str(item[0]))
    words = "; ".join(f"{key}: {failure.detail}" for key, failure in named)
    worst = max(failing.values(), key=lambda failure: SEVERITY[failure.reason])
    critical = SEVERITY[worst.reason] is FailureSeverity.CRITICAL
    level = Level.FAILED if critical else Level.DEGRADED
    return Health(level, worst.reason, *_with_known_faults(snapshot, words, worst.advice))


def _gate(snapshot: Snapshot) -> Health | None:
    """Return the health of ``gate``: probes put off for too long; None before one was."""
    alike: dict[tuple[str, str], dict[str, int]] = {}
    for key, skips in snapshot.measure.put_off.items():
        if skips.starving:
            where = "" if key.gpu is None else f" on GPU {key.gpu}"
            alike.setdefault((where, skips.reason), {})[key.probe] = skips.count
    if not alike:
        return Health(Level.OK) if "gate" in snapshot.health else None
    words = "; ".join(
        f"{', '.join(sorted(counts))}{where} skipped "
        f"{plural(max(counts.values()), 'time')} in a row: {because(reason)}"
        for (where, reason), counts in sorted(alike.items())
    )
    return Health(Level.DEGRADED, "starved", words, GATE_FIX)


def _gpu(snapshot: Snapshot) -> Health | None:
    """Return the health of ``gpu``: whether the driver answers at all."""
    standing = snapshot.measure.breaker
    if standing is None or standing.state == State.CLOSED:
        return None if standing is None else Health(Level.OK)
    level, reason = BREAKER[standing.state]
    words = _words(standing, _kernel_words(snapshot, standing))
    return Health(level, reason, *_with_known_faults(snapshot, words, standing.fix))


def _root(snapshot: Snapshot) -> Health | None:
    """Return the health of ``root``; None before its file was read."""
    if snapshot.root.silent is not None:
        return Health(Level.FAILED, "silent", snapshot.root.silent, "gpud up")
    return None if snapshot.root.report is None else Health(Level.OK)


def _kernel_log(snapshot: Snapshot) -> Health | None:
    """Return the health of ``dxg``; None while the kernel's log cannot be read."""
    report = None if snapshot.root.report is None else snapshot.root.report.kernel_log
    if report is None or report.unreadable is not None:
        return None
    words = f"the kernel's log: {report.last.words}" if report.last is not None else None
    if lost := report.recent.get(DxgKind.MESSAGE_LOST, 0):
        level = Level.FAILED if lost >= REPEATED else Level.DEGRADED
        reason, situation = str(DxgKind.MESSAGE_LOST), Situation.CHANNEL
    elif report.recent.get(DxgKind.NOT_RESIDENT, 0):
        level, reason, situation = Level.DEGRADED, str(DxgKind.NOT_RESIDENT), Situation.FULL
    else:
        return Health(Level.OK)
    fix = advice.words(situation, advice.of(snapshot.machine.platform))
    return Health(level, reason, words, fix)


def _dockerd(snapshot: Snapshot) -> Health | None:
    """Return the health of ``dockerd``; None while root does not know whether it is up."""
    if snapshot.root.report is None or snapshot.root.report.dockerd.up is None:
        return None
    dockerd = snapshot.root.report.dockerd
    if dockerd.up:
        level = Level.OK if dockerd.reason is None else Level.DEGRADED
    else:
        # A machine that has no dockerd and does not manage one misses nothing.
        absent = dockerd.owner == Owner.NONE and dockerd.policy == "observe"
        level = Level.DEGRADED if dockerd.state == "starting" or absent else Level.FAILED
    reason = dockerd.reason or (None if dockerd.up else dockerd.state)
    return Health(level, reason, dockerd.detail, dockerd.fix)


def _containers(snapshot: Snapshot) -> Health | None:
    """Return the health of ``containers``, by root's container probe."""
    report = None if snapshot.root.report is None else snapshot.root.report.containers
    if report is None:
        return None
    inventory = snapshot.measure.inventory
    has_gpu = inventory is not None and bool(inventory.devices)
    return containers.health(report, snapshot.root.comparison, has_gpu=has_gpu)


def _kernel_words(snapshot: Snapshot, standing: BreakerReport) -> str | None:
    """Return the kernel's last word of trouble, where it may be about this hang."""
    report = None if snapshot.root.report is None else snapshot.root.report.kernel_log
    last = None if report is None else report.last
    if last is None or last.at_s is None or standing.since_s is None:
        return None
    return last.words if last.at_s >= standing.since_s - RECENT_S else None


def _with_known_faults(snapshot: Snapshot, words: str, fix: str | None) -> tuple[str, str | None]:
    """Add the known faults that were seen when GPU calls began to fail, and what helps."""
    faults = [fault for fault in snapshot.known_faults if fault.alarm]
    words += "".join(f"; likely {fault.id}: {fault.evidence}" for fault in faults)
    fixes = dict.fromkeys(step for step in (fix, *(fault.fix for fault in faults)) if step)
    return words, "; ".join(fixes) or None


def _words(standing: BreakerReport, kernel: str | None) -> str:
    """Put together what hung, how often, and when it is tried again."""
    parts = [standing.detail or standing.what or "a driver call hung"]
    if standing.hangs > 1:
        parts.append(f"{standing.hangs} times in a row")
    if standing.state == State.STUCK:
        parts.append("no GPU work starts until that process is gone")
    elif standing.state == State.HALF_OPEN:
        hung = (standing.what or "what hung").partition(" on ")[0]
        parts.append(f"{hung} is tried in the next round")
    elif standing.retry_s is not None and standing.since_s is not None:
        rest_s = standing.retry_s - standing.since_s
        parts.append(f"tried again {rest_s / 60:.0f} min after that")
    if kernel is not None:
        parts.append(f"the kernel's log: {kernel}")
    return "; ".join(parts)


class FailureSeverity(IntEnum):
    """What a failed run calls for."""

    INFO = 0  # this machine does not offer it; nothing is wrong
    WARNING = 1  # the machine is busy or not set up: it passes, or the person knows
    CRITICAL = 2  # the GPU, its driver or gpud does not do what it should


_INFO: Final = {
    Reason.UNSUPPORTED,
    Reason.LEFT_OUT,
    Reason.NOT_COLD,
    Reason.VRAM_SHORT,
    Reason.PEER_BUSY,
    Reason.DEPENDENCY_MISSING,
    Reason.CPU_ALWAYS_FASTER,
}
_WARNING: Final = {
    Reason.OUT_OF_MEMORY,
    Reason.DEVICE_BUSY,
    Reason.NOT_READY,
    Reason.BUDGET_EXCEEDED,
    Reason.TOOLKIT_MISSING,
    Reason.RUNTIME_UNKNOWN,
    Reason.REQUIREMENT_UNMET,
    Reason.CDI_UNRESOLVED,
    Reason.PULL_FAILED,
    Reason.DOCKERD_LOST,
}


SEVERITY: Final[Mapping[Reason, FailureSeverity]] = {
    **dict.fromkeys(Reason, FailureSeverity.CRITICAL),
    **dict.fromkeys(_WARNING, FailureSeverity.WARNING),
    **dict.fromkeys(_INFO, FailureSeverity.INFO),
}
"""Every reason; one that is in neither set above is critical."""
