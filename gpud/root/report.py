"""Say how everything is: one document, written whole and renamed into place."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import gpud
from gpud.core import wire
from gpud.core.dockerd import WELL, Api, Keeper, Seen, State
from gpud.core.errors import WireError
from gpud.core.report import AgentReport, ContainersReport, DockerdReport, ProcessRef, RootReport
from gpud.root import files, process

BEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What dockerd said about itself; None until it did."""

    version: str | None = None
    live_restore: bool | None = None
    ping_s: float | None = None


def dockerd(
    keeper: Keeper,
    seen: Seen | None,
    *,
    policy: str,
    facts: Facts,
    trouble: str | None,
) -> DockerdReport:
    """Tell one look and the memory behind it; ``seen`` is None while nobody looks."""
    if seen is None:
        return DockerdReport(state=State.OFF, policy=policy, up=None)
    up = seen.api in WELL
    reason, detail, fix = (None, None, None) if up else _why(keeper, seen, trouble)
    return DockerdReport(
        state=keeper.state,
        policy=policy,
        up=up,
        owner=seen.owner,
        process=seen.process,
        reason=reason,
        detail=detail,
        fix=fix,
        version=facts.version,
        ping_s=facts.ping_s if up else None,
        last_start_s=keeper.last_start_s,
        restarts=dict(keeper.restarts),
        live_restore=facts.live_restore,
    )


def _why(keeper: Keeper, seen: Seen, trouble: str | None) -> tuple[str, str | None, str | None]:
    if seen.process is None and not seen.binary:
        return "binary_missing", trouble, "install docker.io, or set dockerd.policy to observe"
    if keeper.state is State.UNRESPONSIVE and seen.api is Api.SILENT:
        return "hung", "the socket accepts and nothing answers", None
    ended = keeper.last_exit.words() if keeper.last_exit is not None else None
    return str(keeper.state), trouble or ended, None


def write(  # noqa: PLR0913  # one argument per part of the report
    path: Path,
    told: DockerdReport,
    agent: AgentReport,
    containers: ContainersReport | None,
    *,
    me: ProcessRef,
    started_s: float,
) -> None:
    """Write the whole of ``root.json``. Errors: ``OSError``."""
    report = RootReport(
        gpud_version=gpud.__version__,
        process=me,
        privileged=os.geteuid() == 0,
        boot_id=_boot_id(),
        started_s=started_s,
        written_s=time.time(),
        beat_s=time.monotonic(),
        dockerd=told,
        agent=agent,
        containers=containers,
    )
    files.replace(path, wire.encode(report))


def last_agent(path: Path) -> ProcessRef | None:
    """Give the agent a former supervisor of this boot left behind, when it still lives.

    Errors: none; a report that cannot be read (``WireError``, ``OSError``) names nobody.
    """
    try:
        old = wire.decode(path.read_bytes(), RootReport)
    except (OSError, WireError):
        return None
    left = old.agent.process
    return left if old.boot_id == _boot_id() and left and process.alive(left) else None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
