"""``gpud completion SHELL``: a script made from the parser; no key press starts a Python."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

import shtab

from gpud import arguments, discovery
from gpud.agent.alerts import sinks
from gpud.child import probes
from gpud.core.containers import MODE, PROBE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.place import Place

HEAD: Final = "# Made by `gpud completion {shell}`; deploy/install puts it where the shell looks.\n"


def run(options: argparse.Namespace, _: Place) -> int:
    """Print the script."""
    print(script(options.shell))
    return arguments.OK


def script(shell: str) -> str:
    """Return the script of one shell."""
    parser = arguments.parser()
    specs = discovery.modules(probes, ("SPEC",))[0]
    modes = dict.fromkeys(mode for module in specs.values() for mode in module.SPEC.modes)
    words: dict[str, Sequence[str]] = {
        "names": tuple(specs),
        "probe": (*specs, PROBE),
        "mode": (*modes, MODE),
        "sink": discovery.names(sinks),
        "what": (*specs, PROBE),
        "uuids": ("all",),
    }
    for action in _actions(parser):
        if action.dest in {"config", "output"}:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        elif action.dest == "home":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.choices is None:
            action.choices = words.get(action.dest)  # this parser reads no words
    text: str = shtab.complete(parser, shell=shell)
    return _headed(text, shell)


def _headed(text: str, shell: str) -> str:
    """Replace shtab's instructions, which are for other places, by where this one comes from."""
    first, compdef, rest = text.rpartition("#compdef gpud\n")
    lines = rest.splitlines(keepends=True)
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        lines.pop(0)
    return f"{first}{compdef}{HEAD.format(shell=shell)}\n{''.join(lines)}"


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  # there is no other way, and shtab takes it too
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for each in dict.fromkeys(action.choices.values()):
                yield from _actions(each)
