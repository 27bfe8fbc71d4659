"""What this person may do as root without a password: gpud's three commands, or too much."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "sudo rule"
ORDER = 140
SUMMARY = "gpud's rule is there with exact commands, and no rule without a password equals root"
PROGRAM = "/opt/gpud/bin/gpud"
WANTED = frozenset(f"{PROGRAM} {verb}" for verb in ("up", "down", "restart"))
PREFIX = "/opt/gpud/"
ROOT_BY_ARGUMENTS = frozenset(
    {"dockerd", "docker", "containerd", "ctr", "nerdctl", "podman", "bash", "sh", "python3", "env"}
)
"""Programs whose free arguments are root: dockerd by --config-file, docker by a mount of ``/``."""
INSTALL = "run deploy/install again: it writes /etc/sudoers.d/gpud"
_RUN_AS = re.compile(r"^\((?P<who>[^)]*)\) (?P<rest>.+)$")
_TAG = re.compile(r"^(?P<tag>[A-Z_]+):\s*")
_COMMA = re.compile(r"(?<!\\),\s*")


@dataclass(frozen=True, slots=True)
class Grant:
    """One command that needs no password, as whom; words as sudo prints them."""

    run_as: str
    command: str

    @property
    def program(self) -> str:
        """The program's bare name."""
        return PurePosixPath(self.command.split(" ")[0]).name

    @property
    def free(self) -> bool:
        """Say whether arguments are left to the caller: none named, or a wildcard among them."""
        _, _, arguments = self.command.partition(" ")
        return not arguments or any(mark in self.command for mark in "*?[^")

    @property
    def root(self) -> bool:
        """Say whether it may run as root."""
        users = self.run_as.partition(":")[0]
        return any(word.strip() in {"root", "ALL", "#0"} for word in users.split(","))


def look(machine: Machine) -> Finding:
    """Ask sudo, which lists a person's own rules without a password when one needs none."""
    person = machine.person
    if person.uid == 0:
        return ok("you are root and need none")
    sudo = machine.program("sudo")
    if sudo is None:
        if machine.installed:
            return problem("there is no sudo: no shell can start gpud", "sudo apt-get install sudo")
        return ok("no sudo here; a development run needs none")
    other = ["-U", person.name] if machine.environ.get("SUDO_UID") == str(person.uid) else []
    ended = machine.ask([sudo, "-n", "-l", *other])
    if ended.code is None:
        return unknown(f"sudo -n -l: {ended.stderr}")
    return judged(grants(ended.stdout), installed=machine.installed)


def grants(listing: str) -> tuple[Grant, ...]:
    """Read ``sudo -l``: every command that is allowed without a password.

    A tag holds for the commands after it on its line; a deeper indent continues a line.
    """
    lines: list[str] = []
    for line in listing.partition("may run the following commands")[2].splitlines()[1:]:
        if line.startswith(" " * 8) and lines:
            lines[-1] += f" {line.strip()}"
        elif line.strip():
            lines.append(line.strip())
    found = []
    for line in lines:
        matched = _RUN_AS.match(line)
        if matched is None:
            continue
        free = False
        for raw in _COMMA.split(matched["rest"]):
            command = raw
            while tag := _TAG.match(command):
                free = {"NOPASSWD": True, "PASSWD": False}.get(tag["tag"], free)
                command = command[tag.end() :]
            if free and command and not command.startswith("!"):
                found.append(Grant(matched["who"], command.replace("\\", "")))
    return tuple(found)


def judged(found: tuple[Grant, ...], *, installed: bool) -> Finding:
    """Judge the rule of gpud, and rules beside it that give more away than they seem to."""
    as_root = [grant for grant in found if grant.root]
    here = frozenset(grant.command for grant in as_root)
    return combined(_own(here, installed=installed), *map(_too_wide, as_root))


def _own(commands: frozenset[str], *, installed: bool) -> Finding:
    if not installed:
        return ok("a development run needs none")
    if "ALL" in commands or commands >= WANTED:
        return ok("present: up, down, restart")
    missing = sorted(command.rpartition(" ")[2] for command in WANTED - commands)
    return problem(f"missing for {', '.join(missing)}: an opened shell cannot start gpud", INSTALL)


def _too_wide(grant: Grant) -> Finding | None:
    command = grant.command
    if command == "ALL":
        return advice(
            "every command without a password: whatever runs as you is root",
            "your choice; a rule for single commands is narrower",
        )
    if command in WANTED:
        return None
    rule = f"NOPASSWD: {command}"
    if command.startswith(PREFIX):
        return problem(f"{rule} is wider than gpud's own rule and equals root", INSTALL)
    if grant.program in ROOT_BY_ARGUMENTS and grant.free:
        return problem(
            f"{rule} with free arguments equals root for whatever runs as you",
            "remove it (sudo visudo, files in /etc/sudoers.d): gpud starts dockerd without it",
        )
    return None
