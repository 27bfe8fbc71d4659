"""Check of live-restore: whether containers outlive dockerd."""

from __future__ import annotations

from gpud.core.report import Owner
from gpud.doctor import docker
from gpud.doctor.finding import Finding, advice, ok, unknown
from gpud.doctor.machine import Machine

TITLE = "live-restore"
ORDER = 120
SUMMARY = "whether containers survive a restart of dockerd; advised, never switched on unasked"
KEY = "live-restore"
RELOAD = "sudo kill -HUP $(cat /var/run/docker.pid)"


def look(machine: Machine) -> Finding:
    """Take dockerd's own answer through root, else what ``daemon.json`` asks for."""
    if machine.program("dockerd") is None and machine.root is None:
        return ok("no dockerd on this machine")
    report = docker.reported(machine)
    if report is not None and report.owner is Owner.DOCKER_DESKTOP:
        return ok("Docker Desktop decides")
    content, error = docker.daemon_json(machine)
    configured = content.get(KEY) is True
    running = report.live_restore if report is not None else None
    if error is not None and running is None:
        return unknown(error)
    if running or (running is None and configured):
        return ok("on: containers survive a restart of dockerd")
    if configured:
        return advice("on in daemon.json, and dockerd has not read it", RELOAD)
    fix = f'add "{KEY}": true to {docker.DAEMON_JSON}, then `{RELOAD}`, which restarts nothing'
    evidence = "off: a restart of dockerd stops every container"
    return advice(evidence, f"{fix} (not for swarm nodes)")
