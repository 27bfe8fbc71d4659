"""Checks of the sudo rules and of the shell hook."""

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
RULE_AGAIN = "run {} again: it writes /etc/sudoers.d/gpud"
_RULE = re.compile(r"^\((?P<users>[^):]*)[^)]*\) (?P<commands>.+)$")
_TAG = re.compile(r"^(?P<tag>[A-Z_]+):\s*")
_COMMA = re.compile(r"(?<!\\),\s*")
BEGIN, END = "# >>> gpud >>>", "# <<< gpud <<<"
HOOK_INSTALL = "{} puts it there (and --no-bashrc leaves it out)"
SHARE = "/opt/gpud/share"
SNIPPETS = {"bash": "bashrc.snippet", "zsh": "zshrc.snippet", "fish": "config.fish.snippet"}
PROFILES = (".bash_profile", ".bash_login")


@check(140, "sudo rule", may_block=True)  # sudo
def sudo_rule(machine: Machine) -> Finding:
    """Exact commands, and no other rule that equals root."""
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
    listing = machine.run(sudo, "-n", "-l", *other)
    if listing.code is None:
        return unknown(f"sudo -n -l: {listing.stderr}")
    commands = list(_as_root(listing.stdout))
    own, again = ok("a development run needs none"), RULE_AGAIN.format(machine.installer)
    if machine.installed:
        own = _own(set(commands), again)
    return combined(own, *(_too_wide(command, again) for command in commands))


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


def _own(commands: set[str], again: str) -> Finding:
    if "ALL" in commands or commands >= COMMANDS:
        return ok("present: up, down, restart")
    missing = ", ".join(sorted(command.rpartition(" ")[2] for command in COMMANDS - commands))
    return problem(f"missing for {missing}: an opened shell cannot start gpud", again)


def _too_wide(command: str, again: str) -> Finding | None:
    if command == "ALL":
        return advice(
            "every command without a password: whatever runs as you is root",
            "your choice; a rule for single commands is narrower",
        )
    rule = f"NOPASSWD: {command}"
    if command.startswith(PREFIX) and command not in COMMANDS:
        return problem(f"{rule} is wider than gpud's own rule and equals root", again)
    program, _, arguments = command.partition(" ")
    free = not arguments or any(mark in command for mark in "*?[^")
    if free and PurePosixPath(program).name in ROOT_BY_ARGUMENTS:
        return problem(
            f"{rule} with free arguments equals root for whatever runs as you",
            "remove it (sudo visudo, files in /etc/sudoers.d): gpud starts dockerd without it",
        )
    return None


@check(160, "shell hook")
def shell_hook(machine: Machine) -> Finding:
    """Block in the login shell's file: whole, current, reached."""
    shell = PurePosixPath(machine.person.login_shell).name
    if shell not in SNIPPETS:
        return advice(f"your shell is {shell or 'unknown'}: there is no hook for it", "gpud up")
    files = _hook_files(machine, shell)
    texts = {name: machine.text(name) or "" for name in files}
    hooks = {name: text for name, text in texts.items() if BEGIN in text or END in text}
    if not hooks:
        if not machine.installed:
            return ok(f"none in {files[0]}; a development run needs none")
        fix = HOOK_INSTALL.format(machine.installer)
        return advice(f"none in {files[0]}: an opened shell does not start gpud", fix)
    name, text = next(iter(hooks.items()))
    profile = _profile(machine) if shell == "bash" else None
    return combined(
        _block(machine, name, text, machine.text(f"{SHARE}/{SNIPPETS[shell]}")), profile
    )


def _hook_files(machine: Machine, shell: str) -> tuple[str, ...]:
    home = machine.person.home.rstrip("/")
    if shell == "fish":
        return (f"{home}/.config/fish/conf.d/gpud.fish",)
    if shell == "zsh":
        return (f"{(machine.environ.get('ZDOTDIR') or home).rstrip('/')}/.zshrc",)
    return (f"{home}/.bashrc",)


def _block(machine: Machine, name: str, text: str, snippet: str | None) -> Finding:
    """Compare the block in a file with the one of this gpud."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        evidence = f"{name} holds half a block, or more than one"
        return problem(evidence, f"remove what is left of it in {name}, then {machine.installer}")
    block = text.partition(BEGIN)[2].partition(END)[0]
    if (
        snippet is not None
        and block.split() != snippet.partition(BEGIN)[2].partition(END)[0].split()
    ):
        fix = f"{machine.installer} replaces it"
        return advice(f"{name} holds the block of another version", fix)
    return ok(f"in {name}")


def _profile(machine: Machine) -> Finding | None:
    """Check that a login shell, which WSL opens, reads ``.bashrc``: its profile must say so."""
    texts = {name: machine.text(f"{machine.person.home}/{name}") for name in PROFILES}
    name = next((name for name, text in texts.items() if text is not None), None)
    if name is None or "bashrc" in (texts[name] or ""):
        return None
    return advice(
        f"{name} does not read .bashrc: a login shell, which WSL opens, misses the hook",
        f"add to ~/{name}: [ -f ~/.bashrc ] && . ~/.bashrc",
    )
