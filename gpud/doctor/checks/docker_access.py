"""Check of this person's access to Docker's socket in this session."""

from __future__ import annotations

import os

from gpud.doctor import docker
from gpud.doctor.docker import SocketState
from gpud.doctor.finding import Finding, advice, ok, unknown
from gpud.doctor.machine import Machine, Person

TITLE = "docker access"
ORDER = 110
SUMMARY = "whether you may use Docker's socket in this session; membership equals root"
MAY_BLOCK = True  # Docker's socket


def look(machine: Machine) -> Finding:
    """Ask the socket as this person; a refusal is explained by the groups of the session."""
    host = machine.environ.get("DOCKER_HOST", "")
    if host and not _own_socket(machine, host):
        return ok(f"DOCKER_HOST={host}: your docker speaks to another one than gpud's")
    person = machine.person
    if person.uid == 0:
        return ok("root may")
    state, _ = docker.ask_version(docker.socket_path(machine))
    if state in {SocketState.ABSENT, SocketState.REFUSED}:
        return unknown("dockerd is down, so nobody was let in")
    if state is not SocketState.DENIED:
        return ok("you may, which equals root on this machine")
    return _denied(machine, person)


def _denied(machine: Machine, person: Person) -> Finding:
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
    own = os.path.realpath(docker.socket_path(machine))
    return path != host and os.path.realpath(machine.at(path)) == own
