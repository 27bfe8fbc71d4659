"""Whether this person may speak to dockerd in this session, and what that means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.doctor import docker
from gpud.doctor.docker import Api
from gpud.doctor.finding import Finding, advice, ok, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine, Person

TITLE = "docker access"
ORDER = 110
SUMMARY = "whether you may use Docker's socket in this session; membership equals root"
GROUP = "docker"
ROOT = "note that this equals root on this machine"


def look(machine: Machine) -> Finding:
    """Knock as this person; under sudo only the groups are looked at."""
    elsewhere = machine.environ.get("DOCKER_HOST", "")
    if elsewhere and not _same(machine, elsewhere):
        return ok(f"DOCKER_HOST={elsewhere}: your docker speaks to another one than gpud's")
    if machine.person.uid == 0:
        return ok("root may")
    gid, members = group(machine.text("/etc/group") or "", GROUP)
    seen = docker.knock(docker.socket_path(machine))
    return judged(seen.api, machine.person, gid, members)


def _same(machine: Machine, host: str) -> bool:
    """Say whether ``DOCKER_HOST`` leads to gpud's socket: /var/run is a link to /run."""
    path = host.removeprefix("unix://")
    ours = os.path.realpath(docker.socket_path(machine))
    return path != host and os.path.realpath(machine.at(path)) == ours


def group(text: str, name: str) -> tuple[int | None, tuple[str, ...]]:
    """Find a group's number and members in ``/etc/group``."""
    for line in text.splitlines():
        fields = line.split(":")
        if fields[0] == name and len(fields) > len("gid") and fields[2].isdecimal():
            return int(fields[2]), tuple(fields[3].split(","))
    return None, ()


def judged(api: Api, person: Person, gid: int | None, members: tuple[str, ...]) -> Finding:
    """Permission denied is about the socket's group; whether dockerd answers, nobody was told."""
    if api in {Api.ABSENT, Api.REFUSED}:
        return unknown("dockerd is down, so nobody was let in")
    if api is not Api.DENIED:
        return ok("you may, which equals root on this machine")
    if person.name in members and gid not in person.groups:
        return advice(
            "you are in group docker, and this session began before that",
            "open a new terminal, or here: newgrp docker",
        )
    if person.name in members:
        return advice("the socket of dockerd is not for group docker", "gpud status")
    return advice(
        "you are not in group docker",
        f"sudo usermod -aG docker {person.name} ({ROOT}), then open a new terminal",
    )
