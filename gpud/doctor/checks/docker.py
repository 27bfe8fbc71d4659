"""Check of dockerd: its owner, its version, and what keeps it from running."""

from __future__ import annotations

from gpud.core.report import DockerdReport, Owner
from gpud.doctor import docker
from gpud.doctor.docker import SocketState
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "dockerd"
ORDER = 100
SUMMARY = "owner, version and state, a broken daemon.json, Docker Desktop beside an engine"
MAY_BLOCK = True  # Docker's socket
OWNERS = {
    Owner.GPUD: "kept by gpud",
    Owner.SYSTEMD: "systemd's, gpud watches",
    Owner.DOCKER_DESKTOP: "Docker Desktop's, gpud watches",
    Owner.OTHER: "started by somebody else, gpud watches",
}


def look(machine: Machine) -> Finding:
    """Take root's report while it is fresh, else ask the socket."""
    program = machine.program("dockerd")
    report = docker.reported(machine)
    if report is not None and report.up is not None:
        state = _reported(report)
    else:
        state = _asked(machine, program)
    return combined(state, _daemon_json(machine, program), _two_engines(machine, program))


def _reported(report: DockerdReport) -> Finding:
    owner = OWNERS.get(report.owner, str(report.owner).replace("_", " "))
    if report.up:
        evidence = f"{report.version or 'of unknown version'}, {owner}"
        if report.reason is None:
            return ok(evidence)
        return advice(f"{evidence}: {report.detail or report.reason}", report.fix or "gpud status")
    if report.state == "starting":
        return unknown("starting", "ask again in a moment")
    evidence = f"down: {report.detail or report.reason or report.state}"
    if report.state == "absent" and report.owner is Owner.NONE:
        return advice(evidence, report.fix or "start dockerd")
    return problem(evidence, report.fix or "sudo gpud logs --component dockerd says more")


def _asked(machine: Machine, program: str | None) -> Finding:
    state, version = docker.ask_version(docker.socket_path(machine))
    owner = docker.owner(machine)
    words = f", {OWNERS[owner]}" if owner is not None else ""
    if state is SocketState.ANSWERS:
        return ok(f"{version or 'up'}{words}")
    if state is SocketState.DENIED:
        return ok(f"up{words}; its version is for members of its group")
    if state is SocketState.SILENT:
        fix = "gpud restarts a hung dockerd of its own; else: sudo kill it"
        return problem("it listens and does not answer", fix)
    return _down(machine, program, owner)


def _down(machine: Machine, program: str | None, owner: Owner | None) -> Finding:
    if owner is not None:
        return problem(f"down, {OWNERS[owner]}", "start it there: gpud leaves it to its owner")
    if program is None:
        return advice("there is no Docker on this machine", "sudo apt-get install docker.io")
    if machine.installed and machine.root is None:
        return problem("down, and gpud is not running", "gpud up")
    return advice("down, and nobody keeps it", "deploy/run does, as root; so does [dockerd] policy")


def _daemon_json(machine: Machine, program: str | None) -> Finding | None:
    """Report a broken file: dockerd does not start again with it, however well it runs now."""
    _, error = docker.daemon_json(machine)
    if error is None or program is None:
        return None
    return problem(error, "correct it; `dockerd --validate` reads it (Docker 23 and later)")


def _two_engines(machine: Machine, program: str | None) -> Finding | None:
    if program is None or not docker.desktop(machine):
        return None
    return advice(
        f"Docker Desktop serves this distribution and there is an engine too ({program})",
        "keep one: switch WSL integration off in Docker Desktop, or remove docker.io/docker-ce",
    )
