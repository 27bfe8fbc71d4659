"""Check of the shell hook: a whole, current, single block that an opened shell reaches."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import gpud
from gpud.doctor.finding import Finding, advice, check, combined, ok, problem
from gpud.doctor.machine import Machine

BEGIN, END = "# >>> gpud >>>", "# <<< gpud <<<"
INSTALL = "deploy/install puts it there (and --no-bashrc leaves it out)"
SHARE = "/opt/gpud/share"
SNIPPETS = {"bash": "bashrc.snippet", "zsh": "zshrc.snippet", "fish": "config.fish.snippet"}
PROFILES = (".bash_profile", ".bash_login")
_OPENS = re.compile(r"^(?:if|case|for|while|until|select|function)\b|[{(]\s*$")
_CLOSES = re.compile(r"^(?:fi|esac|done|[})])")
_CLOSED = re.compile(r"(?:;|^)\s*(?:fi|esac|done|\})\s*;?$")
_RETURNS = re.compile(r"^(?:return|exit)\b[\s0-9]*;?\s*(?:#.*)?$")


@check(160, "shell hook")
def shell_hook(machine: Machine) -> Finding:
    """Marked block in the login shell's own file: whole, current, once, and reached."""
    shell = PurePosixPath(machine.person.login_shell).name
    if shell not in SNIPPETS:
        return advice(f"your shell is {shell or 'unknown'}: there is no hook for it", "gpud up")
    files = _files(machine, shell)
    texts = {name: machine.text(name) or "" for name in files}
    hooks = {name: text for name, text in texts.items() if BEGIN in text or END in text}
    if not hooks:
        if not machine.installed:
            return ok(f"none in {files[0]}; a development run needs none")
        return advice(f"none in {files[0]}: an opened shell does not start gpud", INSTALL)
    if len(hooks) > 1:
        return problem(f"more than one block: {', '.join(hooks)}", "remove all but one")
    [(name, text)] = hooks.items()
    profile = _profile(machine) if shell == "bash" else None
    return combined(_block(name, text, _snippet(machine, SNIPPETS[shell])), profile)


def _files(machine: Machine, shell: str) -> tuple[str, ...]:
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
    if line := _return_line(stripped[:begin]):
        fix = f"move the block above line {line}"
        return problem(f"{name} returns in line {line}, before the block", fix)
    if snippet is None:
        return ok(f"in {name}")
    block = lines[begin : stripped.index(END) + 1]
    if block != [line.rstrip() for line in snippet.strip().splitlines()]:
        return advice(f"{name} holds the block of another version", "deploy/install replaces it")
    return ok(f"in {name}, current")


def _return_line(lines: list[str]) -> int | None:
    """Find a bare ``return`` or ``exit`` outside of every block; a guarded one is usual."""
    depth = 0
    for number, line in enumerate(lines, 1):
        if _CLOSES.match(line):
            depth -= 1
        elif depth <= 0 and _RETURNS.match(line):
            return number
        elif _OPENS.search(line) and not _CLOSED.search(line):
            depth += 1
    return None


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
