"""Checks of dockerd and the NVIDIA Container Toolkit, as an unprivileged person sees them."""

from __future__ import annotations

import errno
import os
import socket
from enum import StrEnum

import msgspec

from gpud.core import wsl
from gpud.core.health import Level
from gpud.core.report import DockerdReport, Owner, ToolkitReport, ToolkitState
from gpud.core.toolkit import INSTALL
from gpud.doctor.finding import Finding, advice, check, combined, ok, passed_on, problem, unknown
from gpud.doctor.machine import Machine, Person

DAEMON_JSON = "/etc/docker/daemon.json"
REQUEST = b"GET /version HTTP/1.0\r\nHost: docker\r\n\r\n"
ANSWER_LIMIT_S = 0.8
ANSWER_LIMIT = 1 << 16
RELOAD = "sudo kill -HUP $(cat /var/run/docker.pid)"

WAYS: dict[str, str] = {
    ToolkitState.RUNTIME: "`--gpus`",
    ToolkitState.CDI: "CDI",
    ToolkitState.BOTH: "`--gpus` and CDI",
}


class SocketState(StrEnum):
    """Answer of Docker's socket to a request."""

    ANSWERS = "answers"
    DENIED = "denied"  # dockerd is up, and not for us
    SILENT = "silent"  # a process listens and does not answer
    DOWN = "down"  # nothing listens


class _Version(msgspec.Struct, rename="pascal"):
    version: str | None = None


@check(100, "dockerd", may_block=True)  # Docker's socket
def docker(machine: Machine) -> Finding:
    """Owner, version, state, daemon.json, Docker Desktop beside an engine."""
    program = machine.program("dockerd")
    report = _reported(machine)
    if report is not None and report.up is not None:
        state = _by_report(report)
    else:
        state = _by_socket(machine, program, watched=report is None)
    return combined(state, _broken_json(machine, program), _two_engines(machine, program))


def _broken_json(machine: Machine, program: str | None) -> Finding | None:
    """Report a broken file: dockerd does not start again with it, however well it runs now."""
    text = (machine.text(DAEMON_JSON) or "").strip()
    try:
        msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        fix = "correct it; `dockerd --validate` reads it (Docker 23 and later)"
        return (
            problem(f"{DAEMON_JSON} is not what dockerd expects: {error}", fix) if program else None
        )
    return None


def _two_engines(machine: Machine, program: str | None) -> Finding | None:
    if program is None or not _desktop(machine):
        return None
    return advice(
        f"Docker Desktop serves this distribution and there is an engine too ({program})",
        "keep one: switch WSL integration off in Docker Desktop, or remove docker.io/docker-ce",
    )


def _by_report(report: DockerdReport) -> Finding:
    version = report.version or "of unknown version"
    if report.up and report.reason is None:
        return ok(f"{version}, {report.detail or 'kept by gpud'}")
    if report.up:
        owner = report.owner.replace("_", " ")
        evidence = f"{version}, owner {owner}: {report.detail or report.reason}"
        return advice(evidence, report.fix or "gpud status")
    if report.state == "starting":
        return unknown("starting", "ask again in a moment")
    evidence = f"down: {report.detail or report.reason or report.state}"
    if report.state == "absent" and report.owner == Owner.NONE:
        return advice(evidence, report.fix or "start dockerd")
    return problem(evidence, report.fix or "sudo gpud logs --component dockerd says more")


def _by_socket(machine: Machine, program: str | None, *, watched: bool) -> Finding:
    """Ask the socket where root reports nothing. ``watched``: it would, if it ran."""
    state, version = ask_version(_socket_path(machine))
    if state is SocketState.ANSWERS:
        return ok(version or "up")
    if state is SocketState.DENIED:
        return ok("up; its version is for members of its group")
    if state is SocketState.SILENT:
        fix = "gpud restarts a hung dockerd of its own; else: sudo kill it"
        return problem("it listens and does not answer", fix)
    if program is None:
        return advice("there is no Docker on this machine", "sudo apt-get install docker.io")
    if not watched:
        return ok("down; gpud leaves it alone, as `[dockerd] policy` says")
    make = problem if machine.installed else advice
    return make("down, and gpud is not running", "gpud up")


@check(110, "docker access", may_block=True)  # Docker's socket
def docker_access(machine: Machine) -> Finding:
    """Whether you may use Docker's socket now."""
    host, person = machine.environ.get("DOCKER_HOST", ""), machine.person
    if host and not _own_socket(machine, host):
        return ok(f"DOCKER_HOST={host}: your docker speaks to another one than gpud's")
    if person.uid == 0:
        return ok("root may")
    state, _ = ask_version(_socket_path(machine))
    if state is SocketState.DOWN:
        return unknown("dockerd is down, so nobody was let in")
    if state is not SocketState.DENIED:
        return ok("you may, which equals root on this machine")
    return _denied(machine, person)


def _denied(machine: Machine, person: Person) -> Finding:
    """Explain a refusal by the groups of the session."""
    group = machine.account("/etc/group", "docker")
    if group is None or person.name not in group[3].split(","):
        return advice(
            "you are not in group docker",
            f"sudo usermod -aG docker {person.name} (note that this equals root on this machine), "
            "then open a new terminal",
        )
    if group[2] not in map(str, person.groups):
        return advice(
            "you are in group docker, and this session began before that",
            "open a new terminal, or here: newgrp docker",
        )
    return advice("the socket of dockerd is not for group docker", "gpud status")


def _own_socket(machine: Machine, host: str) -> bool:
    """Say whether ``DOCKER_HOST`` leads to gpud's socket: /var/run is a link to /run."""
    path = host.removeprefix("unix://")
    own = os.path.realpath(_socket_path(machine))
    return path != host and os.path.realpath(machine.at(path)) == own


@check(120, "live-restore")
def live_restore(machine: Machine) -> Finding:
    """Whether containers survive a restart of dockerd."""
    report = _reported(machine)
    if report is None:
        return unknown("not known without a running gpud", "gpud up")
    if report.owner == Owner.DOCKER_DESKTOP:
        return ok("Docker Desktop decides")
    if report.live_restore:
        return ok("on: containers survive a restart of dockerd")
    if report.up is None:
        return ok("not looked at: gpud leaves dockerd alone, as `[dockerd] policy` says")
    if not report.up:
        return ok("no dockerd runs")
    fix = f'add "live-restore": true to {DAEMON_JSON}, then `{RELOAD}`, which restarts nothing'
    evidence = "off: a restart of dockerd stops every container"
    return advice(evidence, f"{fix} (not for swarm nodes)")


@check(130, "container toolkit")
def toolkit(machine: Machine) -> Finding:
    """The NVIDIA Container Toolkit, and a GPU container."""
    if machine.root is None:
        return unknown("not known without a running gpud", "gpud up")
    containers = machine.root.containers
    if containers is None:
        return ok("not looked for: gpud leaves dockerd alone, as `[dockerd] policy` says")
    if containers.toolkit is None:
        if not machine.root.dockerd.up:
            return ok("not looked for: no dockerd runs")
        return unknown("not looked yet: gpud asks dockerd, some seconds after it is up")
    return combined(_toolkit(containers.toolkit), _container_run(machine))


def _toolkit(report: ToolkitReport) -> Finding:
    state, evidence = report.state, report.detail or report.reason or ""
    if way := WAYS.get(state):
        return ok(f"containers get GPUs by {way}")
    if state == ToolkitState.UNKNOWN:
        return unknown(evidence, report.fix)
    make = problem if state == ToolkitState.BROKEN else advice
    return make(evidence, report.fix or INSTALL)


def _container_run(machine: Machine) -> Finding | None:
    """Report a failed run in a container; its reasons about the toolkit are reported already."""
    health = machine.health("containers")
    if health is None or health.level == Level.OK or str(health.reason).startswith("toolkit_"):
        return None
    return passed_on(health, f"in a container: {health.detail}", "gpud status")


def _reported(machine: Machine) -> DockerdReport | None:
    """Return what root reports of dockerd."""
    return machine.root.dockerd if machine.root is not None else None


def _desktop(machine: Machine) -> bool:
    """Say whether Docker Desktop serves this distribution."""
    folder = wsl.docker_desktop(machine.wsl_conf)
    behind = machine.inside(_socket_path(machine))
    return behind.startswith(f"{folder}/") or machine.exists(folder)


def _socket_path(machine: Machine) -> str:
    """Return the place of the socket of gpud's dockerd."""
    return str(machine.at(machine.settings.dockerd.socket))


def ask_version(path: str) -> tuple[SocketState, str | None]:
    """Ask dockerd for its version, which changes nothing. Errors: none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
            client.settimeout(ANSWER_LIMIT_S)
            client.connect(path)
            client.sendall(REQUEST)
            answer = client.makefile("rb").read(ANSWER_LIMIT)
    except TimeoutError:
        return SocketState.SILENT, None
    except OSError as error:
        denied = error.errno in {errno.EACCES, errno.EPERM}
        return SocketState.DENIED if denied else SocketState.DOWN, None
    try:
        version = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Version).version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        version = None
    return SocketState.ANSWERS, version
