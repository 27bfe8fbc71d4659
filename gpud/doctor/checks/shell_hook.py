"""Whether an opened shell starts gpud: the marked block, whole, current, once, and reached."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import gpud
from gpud.doctor.finding import Finding, advice, combined, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "shell hook"
ORDER = 160
SUMMARY = "the marked block in the login shell's own file: whole, current, once, and reached"
BEGIN, END = "# >>> gpud >>>", "# <<< gpud <<<"
INSTALL = "deploy/install puts it there (and --no-bashrc leaves it out)"
SHARE = "/opt/gpud/share"
SNIPPETS = {"bash": "bashrc.snippet", "zsh": "zshrc.snippet", "fish": "config.fish.snippet"}
PROFILES = (".bash_profile", ".bash_login")
OPENS = re.compile(r"^(?:if|case|for|while|until|select|function)\b|[{(]\s*$")
CLOSES = re.compile(r"^(?:fi|esac|done|[})])")
LEAVES = re.compile(r"^(?:return|exit)\b[\s0-9]*;?\s*(?:#.*)?$")


def look(machine: Machine) -> Finding:
    """Read the file that the person's login shell reads."""
    shell = PurePosixPath(machine.person.login_shell).name
    if shell not in SNIPPETS:
        return advice(f"your shell is {shell or 'unknown'}: there is no hook for it", "gpud up")
    texts = {name: machine.text(name) or "" for name in _files(machine, shell)}
    holding = {name: text for name, text in texts.items() if BEGIN in text or END in text}
    if not holding:
        name = next(iter(texts))
        if not machine.installed:
            return ok(f"none in {name}; a development run needs none")
        return advice(f"none in {name}: an opened shell does not start gpud", INSTALL)
    if len(holding) > 1:
        return problem(f"more than one block: {', '.join(holding)}", "remove all but one")
    [(name, text)] = holding.items()
    current = _snippet(machine, SNIPPETS[shell])
    return combined(judged(name, text, current), _reached(machine, shell))


def judged(name: str, text: str, current: str | None) -> Finding:
    """Judge the block in the text of a file; ``current`` is the one this gpud brings."""
    lines = text.splitlines()
    begins = [i for i, line in enumerate(lines) if line.strip() == BEGIN]
    ends = [i for i, line in enumerate(lines) if line.strip() == END]
    if len(begins) > 1 or len(ends) > 1:
        return problem(f"{name} holds the block more than once", f"remove all but one in {name}")
    if not begins or not ends or ends[0] < begins[0]:
        return problem(
            f"{name} holds half a block: one of its two marks is missing",
            f"remove what is left of it in {name}, then deploy/install",
        )
    if line := _left_before(lines[: begins[0]]):
        return problem(
            f"{name} returns in line {line}, before the block", f"move the block above line {line}"
        )
    block = [line.rstrip() for line in lines[begins[0] : ends[0] + 1]]
    if current is not None and block != [line.rstrip() for line in current.strip().splitlines()]:
        return advice(f"{name} holds the block of another version", "deploy/install replaces it")
    return ok(f"in {name}" if current is None else f"in {name}, current")


def _left_before(lines: list[str]) -> int | None:
    """Find a bare ``return`` or ``exit`` outside of every block; a guarded one is usual."""
    depth = 0
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if CLOSES.match(line):
            depth -= 1
        elif depth <= 0 and LEAVES.match(line):
            return number
        elif OPENS.search(line) and not re.search(r"(?:;|^)\s*(?:fi|esac|done|\})\s*;?$", line):
            depth += 1
    return None


def _files(machine: Machine, shell: str) -> tuple[str, ...]:
    home = machine.person.home.rstrip("/")
    if shell == "fish":
        return f"{home}/.config/fish/conf.d/gpud.fish", f"{home}/.config/fish/config.fish"
    if shell == "zsh":
        return (f"{(machine.environ.get('ZDOTDIR') or home).rstrip('/')}/.zshrc",)
    return (f"{home}/.bashrc",)


def _reached(machine: Machine, shell: str) -> Finding | None:
    """WSL opens login shells: bash then reads a profile, and ``.bashrc`` only if that says so."""
    if shell != "bash":
        return None
    for name in PROFILES:
        text = machine.text(f"{machine.person.home}/{name}")
        if text is None:
            continue
        if "bashrc" in text:
            return None
        return advice(
            f"{name} does not read .bashrc: a login shell, which WSL opens, misses the hook",
            f"add to ~/{name}: [ -f ~/.bashrc ] && . ~/.bashrc",
        )
    return None


def _snippet(machine: Machine, name: str) -> str | None:
    """Give the block this gpud brings: from the checkout, else from where it is installed."""
    checkout = Path(gpud.__file__).resolve().parent.parent
    if not machine.installed:
        for place in (checkout / name, checkout / "deploy" / name):
            if place.is_file():
                return place.read_text()
    return machine.text(f"{SHARE}/{name}")
