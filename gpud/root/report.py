"""Root's report on dockerd: its state, the reason for it, and what a person can do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, structs

from gpud import regular_file
from gpud.core import wire
from gpud.core.errors import WireError
from gpud.core.report import (
    DockerdReport,
    Owner,
    ProcessRef,
    RootReport,
)
from gpud.root.dockerd_facts import (
    OURS_TO_KEEP,
    WELL,
    Api,
    Containerd,
    DockerdObservation,
    DockerdState,
    Memory,
    last_words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.root.dockerd_facts import DockerdCause

BEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What dockerd said about itself, and the edge about dockerd; None until they did."""

    server_version: str | None = None
    live_restore_enabled: bool | None = None
    containers_running: int | None = None
    ping_s: float | None = None
    trouble: str | None = None  # why the last start did not even begin
    unreachable: ProcessRef | None = None  # gpud's own, behind somebody else's socket
    log: str = ""
    suspect_sockets: int = 0


class DockerInfo(msgspec.Struct, rename="pascal"):
    """What is read of dockerd's answer to ``/info``."""

    server_version: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    live_restore_enabled: bool | None = None
    containers_running: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


def learned(facts: Facts, answer: bytes) -> Facts:
    """Update the facts by an answer; one that is no dockerd's changes nothing."""
    try:
        info = structs.asdict(msgspec.json.decode(answer, type=DockerInfo))
    except wire.UNREADABLE:
        return facts
    return replace(facts, **{name: value for name, value in info.items() if value is not None})


def dockerd(
    memory: Memory, observation: DockerdObservation | None, *, policy: str, facts: Facts
) -> DockerdReport:
    """Tell one look and the memory behind it; ``observation`` is None while nobody looks."""
    if observation is None:
        return DockerdReport(state=DockerdState.OFF, policy=policy, up=None)
    up = observation.api in WELL
    why = (
        _why_not_well(observation, policy, facts)
        if up
        else _why_down(memory, observation, policy, facts)
    )
    return DockerdReport(
        state=memory.state,
        policy=policy,
        up=up,
        owner=observation.owner,
        process=observation.process,
        reason=why.reason,
        detail=why.detail,
        fix=why.fix,
        version=facts.server_version,
        ping_s=facts.ping_s if up else None,
        last_start_s=memory.last_start_s,
        restarts=dict(memory.restarts),
        live_restore=facts.live_restore_enabled,
        containers_running=facts.containers_running if up else None,
        suspect_sockets=facts.suspect_sockets,
    )


@dataclass(frozen=True, slots=True)
class Explanation:
    """A slug, the evidence and what to do; all None when all is well."""

    reason: str | None = None
    detail: str | None = None
    fix: str | None = None


def _why_not_well(observation: DockerdObservation, policy: str, facts: Facts) -> Explanation:
    """Tell what is wrong although the API answers, or whose it is when it is not kept."""
    owner = _NAMES.get(observation.owner, observation.owner)
    if facts.unreachable is not None:
        pid = facts.unreachable.pid
        return Explanation(
            "handed_over",
            f"{owner} answers on the socket; the dockerd gpud started (pid {pid}) "
            "still runs behind it, with its containers",
            f"sudo kill {pid} ends it and its containers; it takes the socket's file along, so "
            f"start {owner} anew afterwards",
        )
    if observation.containerd is Containerd.OWN_IS_GONE:
        return Explanation(
            "containerd_gone", "dockerd's containerd has ended; dockerd starts it again"
        )
    if observation.containerd is Containerd.OTHER_IS_GONE:
        return Explanation(
            "containerd_gone",
            "nobody listens on the socket of the containerd that dockerd uses",
            "start that containerd again: dockerd did not start it and cannot",
        )
    if observation.owner not in OURS_TO_KEEP and policy != "manage":
        begins = " and begins when it is gone" if policy == "auto" else ""
        return Explanation(detail=f"kept by {owner}; gpud watches it{begins}")
    return Explanation()


def _why_down(
    memory: Memory, observation: DockerdObservation, policy: str, facts: Facts
) -> Explanation:
    cause = observation.obstacle or (memory.hold.cause if memory.hold is not None else None)
    if memory.state is DockerdState.MISCONFIGURED and cause is not None:
        return _why_held(cause, policy, looked_for=cause is observation.obstacle)
    theirs = observation.owner not in OURS_TO_KEEP and policy != "manage"
    if theirs and observation.process is None:
        return Explanation(f"left_to_{observation.owner}", *_THEIRS[observation.owner])
    match memory.state:
        case DockerdState.ABSENT:
            return Explanation(
                "absent",
                f"no dockerd runs, and gpud only watches (policy {policy})",
                'start dockerd, or run gpud as root with dockerd.policy = "auto"; '
                'without Docker: dockerd.policy = "off"',
            )
        case DockerdState.UNRESPONSIVE:
            return _why_silent(observation, by_hand=theirs or policy == "observe")
        case DockerdState.STOPPING:
            why = _HUNG if memory.terminated_for == "hung" else "its containerd has ended"
            return Explanation("stopping", f"{why}; dockerd was asked to end and is started anew")
        case _:
            return _why_not_started(memory, facts)


def _why_silent(observation: DockerdObservation, *, by_hand: bool) -> Explanation:
    """Tell of a dockerd that does not answer, with a fix where gpud does not replace it itself."""
    if observation.process is None:
        return Explanation("hung", _HUNG, "end or restart what listens on the socket")
    kill = f"sudo kill {observation.process.pid}"
    if observation.api is Api.SILENT:
        if by_hand:
            return Explanation("hung", _HUNG, kill)
        waits = f"{_HUNG}; gpud replaces dockerd once it does no work"
        return Explanation("hung", waits, f"wait; to end it while it works: {kill}")
    return Explanation(
        "socket_gone",
        "dockerd runs, and its socket file is not there any more",
        f"to start it anew, which ends containers without live-restore: {kill}",
    )


def _why_held(cause: DockerdCause, policy: str, *, looked_for: bool) -> Explanation:
    """Tell a cause; one that is looked for before each start ends as soon as it is not there."""
    ends = cause.ends_when()
    after = "then: gpud restart" if ends is None else f"gpud starts dockerd again once {ends}"
    after = "gpud then starts dockerd" if looked_for else after
    fix = cause.fix if policy == "observe" else f"{cause.fix}; {after}"
    return Explanation(cause.slug, cause.detail, fix)


def _why_not_started(memory: Memory, facts: Facts) -> Explanation:
    """Tell how the last dockerd ended, while the next one starts or is waited for."""
    ended = facts.trouble or (memory.last_exit.words() if memory.last_exit is not None else None)
    if memory.state is DockerdState.STARTING:
        return Explanation("starting", ended or "dockerd has not answered yet")
    words = ended or "how the last dockerd ended is unknown"
    if memory.state is DockerdState.CRASHLOOP:
        log = memory.last_exit.log if memory.last_exit is not None else ()
        words = facts.trouble or last_words(log) or words
        words = f"failed {memory.failures} times in a row: {words}"
    fix = f"read {facts.log}; gpud tries again by itself, at once after sudo gpud restart"
    return Explanation(str(memory.state), words, fix)


_HUNG = "the socket accepts, and no good answer to a ping comes in time"
_NAMES: dict[str, str] = {
    Owner.DOCKER_DESKTOP: "Docker Desktop",
    Owner.OTHER_USER: "another user",
    Owner.OTHER_DISTRIBUTION: "another distribution",
    Owner.OTHER: "somebody else",
}
_THEIRS = {
    Owner.SYSTEMD: (
        "systemd's docker.service or docker.socket is enabled: starting dockerd is its task",
        "sudo systemctl start docker, or disable docker and docker.socket to leave it to gpud",
    ),
    Owner.DOCKER_DESKTOP: (
        "the socket leads to Docker Desktop, and nobody answers there",
        "start Docker Desktop, or switch off its integration with this distribution",
    ),
    Owner.OTHER_DISTRIBUTION: (
        "another WSL distribution's dockerd runs: two would fight over docker0 and the firewall",
        "use Docker in that distribution, or stop dockerd there",
    ),
    Owner.OTHER_USER: ("another user's dockerd has the socket", "start that dockerd again"),
    Owner.OTHER: ("another program has the socket", "end it, or give dockerd.socket another path"),
}


def last_agent(path: Path) -> ProcessRef | None:
    """Give the agent of a former supervisor of this boot, which may still live.

    Errors: none; a report that cannot be read (``WireError``, ``OSError``) names nobody.
    """
    try:
        old = wire.decode(path.read_bytes(), RootReport)
    except (OSError, WireError):
        return None
    return old.agent.process if old.boot_id == boot_id() else None


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where it says none."""
    return (regular_file.text("/proc/sys/kernel/random/boot_id") or "").strip()
