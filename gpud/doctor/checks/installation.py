"""Checks of the installation: what root runs, the sudo rules and the shell hook."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

import gpud
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem, unknown
from gpud.doctor.machine import Machine, writable_by_others

TREE = "/opt/gpud"
ALSO = ("/etc/gpud/gpud.toml", "/etc/sudoers.d")
MOST_FILES = 20_000
MOST_SHOWN = 3
PREFIX = "/opt/gpud/"
COMMANDS = frozenset(f"{PREFIX}bin/gpud {verb}" for verb in ("up", "down", "restart"))
ROOT_BY_ARGUMENTS = frozenset(
    {"dockerd", "docker", "containerd", "ctr", "nerdctl", "podman", "bash", "sh", "python3", "env"}
)
"""Programs whose free arguments are root: dockerd by --config-file, docker by a mount of ``/``."""
RULE_AGAIN = "run deploy/install again: it writes /etc/sudoers.d/gpud"
_RULE = re.compile(r"^\((?P<users>[^):]*)[^)]*\) (?P<commands>.+)$")
_TAG = re.compile(r"^(?P<tag>[A-Z_]+):\s*")
_COMMA = re.compile(r"(?<!\\),\s*")
BEGIN, END = "# >>> gpud >>>", "# <<< gpud <<<"
HOOK_INSTALL = "deploy/install puts it there (and --no-bashrc leaves it out)"
SHARE = "/opt/gpud/share"
SNIPPETS = {"bash": "bashrc.snippet", "zsh": "zshrc.snippet", "fish": "config.fish.snippet"}
PROFILES = (".bash_profile", ".bash_login")


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
    return problem(f"missing for {missing}: an opened shell cannot start gpud", RULE_AGAIN)


def _too_wide(command: str) -> Finding | None:
    if command == "ALL":
        return advice(
            "every command without a password: whatever runs as you is root",
            "your choice; a rule for single commands is narrower",
        )
    rule = f"NOPASSWD: {command}"
    if command.startswith(PREFIX) and command not in COMMANDS:
        return problem(f"{rule} is wider than gpud's own rule and equals root", RULE_AGAIN)
    program, _, arguments = command.partition(" ")
    free = not arguments or any(mark in command for mark in "*?[^")
    if free and PurePosixPath(program).name in ROOT_BY_ARGUMENTS:
        return problem(
            f"{rule} with free arguments equals root for whatever runs as you",
            "remove it (sudo visudo, files in /etc/sudoers.d): gpud starts dockerd without it",
        )
    return None


@check(150, "installation")
def installation(machine: Machine) -> Finding:
    """No component that root runs is writable by anybody else."""
    if not machine.installed:
        return ok(f"a development run in {machine.settings.home}: it is yours, all of it")
    if not machine.exists(TREE):
        return problem(f"{TREE} is not there, and gpud's files begin at /", "run deploy/install")
    paths = dict.fromkeys([*_with_parents(machine, TREE, *ALSO), *_below_tree(machine)])
    writable = [f"{path} ({why})" for path in paths if (why := _not_roots(machine.at(path)))]
    if not writable:
        return ok(f"everything on the path of {TREE} belongs to root alone")
    more = len(writable) - MOST_SHOWN
    shown = ", ".join(writable[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    fix = f"sudo chown root:root PATH; sudo chmod go-w PATH; better: remove {TREE}, deploy/install"
    return problem(f"not root's alone: {shown}", fix)


def _not_roots(path: Path) -> str | None:
    """Say why another user than root can change a file; None if none can."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    if facts.st_uid != 0:
        return f"owner {facts.st_uid}"
    return None if stat.S_ISLNK(facts.st_mode) else writable_by_others(facts)


def _below_tree(machine: Machine) -> Iterator[str]:
    """Yield every path below the installed tree, and those its links lead to."""
    root = str(machine.at("/")).rstrip("/")
    places = (
        f"{folder}/{name}"
        for folder, folders, files in os.walk(machine.at(TREE))
        for name in (*folders, *files)
    )
    for place in islice(places, MOST_FILES):
        yield place.removeprefix(root)
        if os.path.islink(place):  # noqa: PTH114  # thousands
            yield from _with_parents(machine, os.path.realpath(place).removeprefix(root))


def _with_parents(machine: Machine, *paths: str) -> Iterator[str]:
    for path in paths:
        for part in (*reversed(PurePosixPath(path).parents), path):
            if os.path.lexists(machine.at(str(part))):
                yield str(part)


@check(160, "shell hook")
def shell_hook(machine: Machine) -> Finding:
    """Marked block in the login shell's own file: whole, current, once, and reached."""
    shell = PurePosixPath(machine.person.login_shell).name
    if shell not in SNIPPETS:
        return advice(f"your shell is {shell or 'unknown'}: there is no hook for it", "gpud up")
    files = _hook_files(machine, shell)
    texts = {name: machine.text(name) or "" for name in files}
    hooks = {name: text for name, text in texts.items() if BEGIN in text or END in text}
    if not hooks:
        if not machine.installed:
            return ok(f"none in {files[0]}; a development run needs none")
        return advice(f"none in {files[0]}: an opened shell does not start gpud", HOOK_INSTALL)
    if len(hooks) > 1:
        return problem(f"more than one block: {', '.join(hooks)}", "remove all but one")
    [(name, text)] = hooks.items()
    profile = _profile(machine) if shell == "bash" else None
    return combined(_block(name, text, _snippet(machine, SNIPPETS[shell])), profile)


def _hook_files(machine: Machine, shell: str) -> tuple[str, ...]:
    home = machine.person.home.rstrip("/")
    if shell == "fish":
        return f"{home}/.config/fish/conf.d/gpud.fish", f"{home}/.config/fish/config.fish"
    if shell == "zsh":
        return (f"{(machine.environ.get('ZDOTDIR') or home).rstrip('/')}/.zshrc",)
    return (f"{home}/.bashrc",)


def _block(name: str, text: str, snippet: str | None) -> Finding:
    """Compare the block in a file with the one of this gpud."""
    lines = [line.rstrip() for line in text.splitlines()]
    stripped = [line.strip() for line in lines]
    if stripped.count(BEGIN) > 1 or stripped.count(END) > 1:
        return problem(f"{name} holds the block more than once", f"remove all but one in {name}")
    begin = stripped.index(BEGIN) if BEGIN in stripped else len(lines)
    if END not in stripped[begin:]:
        return problem(
            f"{name} holds half a block: one of its two marks is missing",
            f"remove what is left of it in {name}, then deploy/install",
        )
    if snippet is None:
        return ok(f"in {name}")
    block = lines[begin : stripped.index(END) + 1]
    if block != [line.rstrip() for line in snippet.strip().splitlines()]:
        return advice(f"{name} holds the block of another version", "deploy/install replaces it")
    return ok(f"in {name}, current")


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


def _snippet(machine: Machine, name: str) -> str | None:
    """Return the block of this gpud: from the checkout, else from where it is installed."""
    checkout = Path(gpud.__file__).resolve().parent.parent
    if not machine.installed:
        for place in (checkout / name, checkout / "deploy" / name):
            if place.is_file():
                return place.read_text()
    return machine.text(f"{SHARE}/{name}")
