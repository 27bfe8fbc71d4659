"""``gpud completion SHELL``: a script made from the parser; no key press starts a Python.

Names that only the running agent knows (alerts, GPUs) are read from the status that it publishes.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

import shtab

from gpud import arguments, discovery
from gpud.agent.alerts import sinks
from gpud.agent.state.containers import MODE, PROBE
from gpud.child import probes
from gpud.core.alerts import SHORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.place import Place

FIRES: Final = (
    '"fingerprint": ?"[0-9a-f]{16}", ?"starts_s": ?[^,]+, ?"updated_s": ?[^,]+, ?"firing": ?true'
)
GPU: Final = r'"(GPU|MIG)-[0-9A-Za-z-]+": ?\{"number": ?[0-9]+'
READ: Final = 'timeout 1 head -c 32M -- "$file"'
"""The document is in the agent's hands: what is not a file of a sane size must not stop a TAB."""
PUBLISHED: Final = {
    "alerts": f"{READ} | grep -oE '{FIRES}' | grep -oE '\"[0-9a-f]{{16}}\"' | cut -c2-{SHORT + 1}",
    "gpus": f"""{READ} | grep -oE '{GPU}' | grep -oE '[0-9]+$'""",
    "uuids": f"""{READ} | grep -oE '{GPU}' | cut -d '"' -f 2""",
}
"""How each kind of name is taken from the agent's document; nothing but such a name comes out."""
FILE: Final = "run/gpud/agent.json"


def run(options: argparse.Namespace, _: Place) -> int:
    """Print the script."""
    print(script(options.shell))
    return arguments.OK


def script(shell: str) -> str:
    """Return the script of one shell."""
    parser = arguments.parser()
    specs = discovery.modules(probes, ("SPEC",))[0]
    modes = dict.fromkeys(mode for module in specs.values() for mode in module.SPEC.modes)
    names: dict[str, tuple[Sequence[str], str | None]] = {
        "names": (tuple(specs), None),
        "probe": ((*specs, PROBE), None),
        "mode": ((*modes, MODE), None),
        "sink": (discovery.names(sinks), None),
        "gpu": (("cpu",), "gpus"),
        "gpus": (("all",), "uuids"),
        "id": ((), "alerts"),
    }
    for action in _actions(parser):
        if action.dest in {"config", "output"}:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        elif action.dest == "home":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.dest in names and action.choices is None:
            words, published = names[action.dest]
            if published is None:
                action.choices = words  # this parser reads no words
            else:
                action.complete = _published(published, words)  # type: ignore[attr-defined]
    preamble: Any = _preamble()  # by shell, which shtab's annotation does not say
    text: str = shtab.complete(parser, shell=shell, preamble=preamble)
    if shell == "zsh":  # shtab's form completes the first of several words and no other
        text = text.replace('"(*)::', '"*:')
    return text


def _published(kind: str, words: Sequence[str]) -> dict[str, Any]:
    """Return shtab's function that completes one kind of name, and these words."""
    name, static = f"_gpud_{kind}{len(words)}", " ".join(words)
    return {
        "bash": name,
        "zsh": name,
        "fish": f"(_gpud_published {kind}) {static}".strip(),
        "preamble": {
            "bash": f'{name}() {{ compgen -W "{static} $(_gpud_published {kind})" -- "$1"; }}',
            "zsh": f'{name}() {{ compadd -- {static} ${{(f)"$(_gpud_published {kind})"}}; }}',
        },
    }


def _preamble() -> dict[str, str]:
    """Return for each shell the function that reads names from the agent's document."""
    posix = "\n".join(f"    {kind}) {line} ;;" for kind, line in PUBLISHED.items())
    fish = "\n".join(f"    case {kind}\n      {line}" for kind, line in PUBLISHED.items())
    shell = (
        f'_gpud_published() {{\n  local file="${{GPUD_HOME-}}/{FILE}"\n'
        '  [ -f "$file" ] || return\n'
        f"  case $1 in\n{posix}\n  esac 2>/dev/null\n}}"
    )
    return {
        "bash": shell,
        "zsh": shell,
        "fish": (
            f'function _gpud_published\n  set -l file "$GPUD_HOME/{FILE}"\n  test -f "$file"\n'
            f"  or return\n  switch $argv[1]\n{fish}\n  end\nend"
        ),
    }


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  # there is no other way, and shtab takes it too
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for each in dict.fromkeys(action.choices.values()):
                yield from _actions(each)
