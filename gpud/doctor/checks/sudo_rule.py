"""Check of the sudo rules of this person: gpud's three commands, and none that equals root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

TITLE = "sudo rule"
ORDER = 140
SUMMARY = "gpud's rule is there with exact commands, and no rule without a password equals root"
MAY_BLOCK = True  # sudo
PROGRAM = "/opt/gpud/bin/gpud"
COMMANDS = frozenset(f"{PROGRAM} {verb}" for verb in ("up", "down", "restart"))
PREFIX = "/opt/gpud/"
ROOT_BY_ARGUMENTS = frozenset(
    {"dockerd", "docker", "containerd", "ctr", "nerdctl", "podman", "bash", "sh", "python3", "env"}
)
"""Programs whose free arguments are root: dockerd by --config-file, docker by a mount of ``/``."""
INSTALL = "run deploy/install again: it writes /etc/sudoers.d/gpud"
_RUN_AS = re.compile(r"^\((?P<users>[^):]*)[^)]*\) (?P<rest>.+)$")
_TAG = re.compile(r"^(?P<tag>[A-Z_]+):\s*")
_COMMA = re.compile(r"(?<!\\),\s*")


@dataclass(frozen=True, slots=True)
class SudoGrant:
    """A command that needs no password, in the words of sudo."""

    users: str  # it may run as these
    command: str

    @property
    def as_root(self) -> bool:
        """Say whether it may run as root."""
        return any(user.strip() in {"root", "ALL", "#0"} for user in self.users.split(","))

    @property
    def equals_root(self) -> bool:
        """Say whether its free arguments are root: none named, or a wildcard among them."""
        program, _, arguments = self.command.partition(" ")
        free = not arguments or any(mark in self.command for mark in "*?[^")
        return free and PurePosixPath(program).name in ROOT_BY_ARGUMENTS


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
    listing = machine.run([sudo, "-n", "-l", *other])
    if listing.code is None:
        return unknown(f"sudo -n -l: {listing.stderr}")
    commands = [grant for grant in grants(listing.stdout) if grant.as_root]
    own = _own({grant.command for grant in commands}, installed=machine.installed)
    return combined(own, *map(_too_wide, commands))


def grants(listing: str) -> Iterator[SudoGrant]:
    """Read ``sudo -l``: every command that is allowed without a password.

    A tag holds for the commands after it on its line; a deeper indent continues a line.
    """
    rules = listing.partition("may run the following commands")[2].partition("\n")[2]
    for line in re.sub(r"\n {8,}", " ", rules).splitlines():
        rule = _RUN_AS.match(line.strip())
        if rule is None:
            continue
        free = False
        for entry in _COMMA.split(rule["rest"]):
            command = entry
            while tag := _TAG.match(command):
                free = {"NOPASSWD": True, "PASSWD": False}.get(tag["tag"], free)
                command = command[tag.end() :]
            if free and command and not command.startswith("!"):
                yield SudoGrant(rule["users"], command.replace("\\", ""))


def _own(commands: set[str], *, installed: bool) -> Finding:
    if not installed:
        return ok("a development run needs none")
    if "ALL" in commands or commands >= COMMANDS:
        return ok("present: up, down, restart")
    missing = ", ".join(sorted(command.rpartition(" ")[2] for command in COMMANDS - commands))
    return problem(f"missing for {missing}: an opened shell cannot start gpud", INSTALL)


def _too_wide(grant: SudoGrant) -> Finding | None:
    if grant.command == "ALL":
        return advice(
            "every command without a password: whatever runs as you is root",
            "your choice; a rule for single commands is narrower",
        )
    rule = f"NOPASSWD: {grant.command}"
    if grant.command.startswith(PREFIX) and grant.command not in COMMANDS:
        return problem(f"{rule} is wider than gpud's own rule and equals root", INSTALL)
    if grant.equals_root:
        return problem(
            f"{rule} with free arguments equals root for whatever runs as you",
            "remove it (sudo visudo, files in /etc/sudoers.d): gpud starts dockerd without it",
        )
    return None
