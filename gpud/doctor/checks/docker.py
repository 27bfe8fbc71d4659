"""Whose dockerd runs, which version, and what keeps it from running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core.report import Owner
from gpud.doctor import docker
from gpud.doctor.docker import Api
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.core.report import DockerdReport
    from gpud.doctor.machine import Machine

TITLE = "dockerd"
ORDER = 100
SUMMARY = "owner, version and state, a broken daemon.json, Docker Desktop beside an engine"
OWNERS = {
    Owner.GPUD: "kept by gpud",
    Owner.SYSTEMD: "systemd's, gpud watches",
    Owner.DOCKER_DESKTOP: "Docker Desktop's, gpud watches",
    Owner.OTHER: "started by somebody else, gpud watches",
}
PROGRAM = "dockerd"


def look(machine: Machine) -> Finding:
    """Take root's word while it is fresh, else look at the socket."""
    program = machine.program(PROGRAM)
    report = machine.root.dockerd if machine.root is not None else None
    if report is not None and report.up is not None:
        state = reported(report)
    else:
        seen = docker.knock(docker.socket_path(machine))
        wanted = machine.installed and machine.root is None
        state = looked(seen, docker.owner(machine), program, wanted=wanted)
    return combined(state, _file(machine, program), _twice(machine, program))


def reported(report: DockerdReport) -> Finding:
    """Judge what root says: its reason, evidence and fix are passed on."""
    whose = OWNERS.get(report.owner, str(report.owner).replace("_", " "))
    version = report.version or "of unknown version"
    if report.up:
        head = f"{version}, {whose}"
        if report.reason is None:
            return ok(head)
        return advice(f"{head}: {report.detail or report.reason}", report.fix or "gpud status")
    if report.state == "starting":
        return unknown("starting", "ask again in a moment")
    words = f"down: {report.detail or report.reason or report.state}"
    if report.state == "absent" and report.owner is Owner.NONE:
        return advice(words, report.fix or "start dockerd")
    return problem(words, report.fix or "sudo gpud logs --component dockerd says more")


def looked(seen: docker.Seen, owner: Owner | None, program: str | None, *, wanted: bool) -> Finding:
    """Judge what the socket did; ``wanted`` says that an installed gpud would keep dockerd."""
    whose = f", {OWNERS[owner]}" if owner is not None else ""
    match seen.api:
        case Api.ANSWERS:
            return ok(f"{seen.version or 'up'}{whose}")
        case Api.DENIED:
            return ok(f"up{whose}; its version is for members of its group")
        case Api.SILENT:
            return problem(
                "it listens and does not answer",
                "gpud restarts a hung dockerd of its own; else: sudo kill it",
            )
        case _:
            return _down(owner, program, wanted=wanted)


def _down(owner: Owner | None, program: str | None, *, wanted: bool) -> Finding:
    if owner is not None:
        return problem(f"down, {OWNERS[owner]}", "start it there: gpud leaves it to its owner")
    if program is None:
        return advice("there is no Docker on this machine", "sudo apt-get install docker.io")
    if wanted:
        return problem("down, and gpud is not running", "gpud up")
    return advice("down, and nobody keeps it", "deploy/run does, as root; so does [dockerd] policy")


def _file(machine: Machine, program: str | None) -> Finding | None:
    """A dockerd with a broken file does not start again, however well it runs now."""
    _, trouble = docker.daemon_json(machine)
    if trouble is None or program is None:
        return None
    return problem(trouble, f"correct it; `{PROGRAM} --validate` reads it (Docker 23 and later)")


def _twice(machine: Machine, program: str | None) -> Finding | None:
    if program is None or not docker.desktop(machine):
        return None
    return advice(
        f"Docker Desktop serves this distribution and there is an engine too ({program})",
        "keep one: switch WSL integration off in Docker Desktop, or remove docker.io/docker-ce",
    )
