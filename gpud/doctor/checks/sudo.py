"""Check of the sudo rules of this person: gpud's three commands, and none that equals root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine

PREFIX = "/opt/gpud/"
COMMANDS = frozenset(f"{PREFIX}bin/gpud {verb}" for verb in ("up", "down", "restart"))
ROOT_BY_ARGUMENTS = frozenset(
    {"dockerd", "docker", "containerd", "ctr", "nerdctl", "podman", "bash", "sh", "python3", "env"}
)
"""Programs whose free arguments are root: dockerd by --config-file, docker by a mount of ``/``."""
AGAIN = "run deploy/install again: it writes /etc/sudoers.d/gpud"
_RULE = re.compile(r"^\((?P<users>[^):]*)[^)]*\) (?P<commands>.+)$")
_TAG = re.compile(r"^(?P<tag>[A-Z_]+):\s*")
_COMMA = re.compile(r"(?<!\\),\s*")


@check(140, "sudo rule", may_block=True)  # sudo
def sudo_rule(machine: Machine) -> Finding:
    """Rule of gpud with exact commands, and no rule without a password that equals root."""
    person = machine.person
    if person.uid == 0:
        return ok("you are root and need none")
    sudo = machine.program("sudo")
    if sudo is None:
        if machine.installed:
            return problem("there is no sudo: no shell can start gpud", "sudo apt-get install sudo")
        return ok("no sudo here; a development run needs none")
    # sudo lists a person's own rules without a password when one of them needs none.
    other = ["-U", person.name] if machine.environ.get("SUDO_UID") == str(person.uid) else []
    listing = machine.run([sudo, "-n", "-l", *other])
    if listing.code is None:
        return unknown(f"sudo -n -l: {listing.stderr}")
    commands = list(_as_root(listing.stdout))
    own = ok("a development run needs none")
    if machine.installed:
        own = _own(set(commands))
    return combined(own, *map(_too_wide, commands))


def _as_root(listing: str) -> Iterator[str]:
    """Read ``sudo -l``: every command that is allowed as root without a password.

    A tag holds for the commands after it on its line; a deeper indent continues a line.
    """
    rules = listing.partition("may run the following commands")[2].partition("\n")[2]
    for line in re.sub(r"\n {8,}", " ", rules).splitlines():
        rule = _RULE.match(line.strip())
        users = {user.strip() for user in rule["users"].split(",")} if rule else set()
        if rule is None or not users & {"root", "ALL", "#0"}:
            continue
        free = False
        for entry in _COMMA.split(rule["commands"]):
            command = entry
            while tag := _TAG.match(command):
                free = {"NOPASSWD": True, "PASSWD": False}.get(tag["tag"], free)
                command = command[tag.end() :]
            if free and command and not command.startswith("!"):
                yield command.replace("\\", "")


def _own(commands: set[str]) -> Finding:
    if "ALL" in commands or commands >= COMMANDS:
        return ok("present: up, down, restart")
    missing = ", ".join(sorted(command.rpartition(" ")[2] for command in COMMANDS - commands))
    return problem(f"missing for {missing}: an opened shell cannot start gpud", AGAIN)


def _too_wide(command: str) -> Finding | None:
    if command == "ALL":
        return advice(
            "every command without a password: whatever runs as you is root",
            "your choice; a rule for single commands is narrower",
        )
    rule = f"NOPASSWD: {command}"
    if command.startswith(PREFIX) and command not in COMMANDS:
        return problem(f"{rule} is wider than gpud's own rule and equals root", AGAIN)
    program, _, arguments = command.partition(" ")
    free = not arguments or any(mark in command for mark in "*?[^")
    if free and PurePosixPath(program).name in ROOT_BY_ARGUMENTS:
        return problem(
            f"{rule} with free arguments equals root for whatever runs as you",
            "remove it (sudo visudo, files in /etc/sudoers.d): gpud starts dockerd without it",
        )
    return None
