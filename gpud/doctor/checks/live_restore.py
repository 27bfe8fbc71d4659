"""Whether containers outlive dockerd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.report import Owner
from gpud.doctor import docker
from gpud.doctor.finding import Finding, advice, ok, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "live-restore"
ORDER = 120
SUMMARY = "whether containers survive a restart of dockerd; advised, never switched on unasked"
KEY = "live-restore"
RELOAD = "sudo kill -HUP $(cat /var/run/docker.pid)"
FIX = (
    f'add "{KEY}": true to {docker.DAEMON_JSON}, then `{RELOAD}`, which restarts nothing '
    "(not for swarm nodes)"
)


def look(machine: Machine) -> Finding:
    """Take dockerd's own word through root, else what ``daemon.json`` asks for."""
    if machine.program("dockerd") is None and machine.root is None:
        return ok("no dockerd on this machine")
    said, trouble = docker.daemon_json(machine)
    report = machine.root.dockerd if machine.root is not None else None
    runs = report.live_restore if report is not None else None
    if report is not None and report.owner is Owner.DOCKER_DESKTOP:
        return ok("Docker Desktop decides")
    if trouble is not None and runs is None:
        return unknown(trouble)
    return judged(runs, wanted=said.get(KEY) is True)


def judged(runs: bool | None, *, wanted: bool) -> Finding:  # noqa: FBT001
    """Off is a choice; what it costs is said."""
    if runs or (runs is None and wanted):
        return ok("on: containers survive a restart of dockerd")
    if wanted:
        return advice(
            "on in daemon.json, and dockerd has not read it",
            "sudo kill -HUP $(cat /var/run/docker.pid)",
        )
    return advice("off: a restart of dockerd stops every container", FIX)
