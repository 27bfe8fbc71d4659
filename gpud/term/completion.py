"""Completion for shells, made from the parser: static, so that no key press starts a Python."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

import shtab

from gpud import discovery
from gpud.agent import alerts
from gpud.child import probes

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES: Final = {"config", "file", "html", "output"}
DIRECTORIES: Final = {"home"}
PLACES: Final = ("cpu",)
"""What can be said of a GPU without asking the machine."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Give the script of one of ``shtab``'s shells."""
    known = {
        "names": discovery.names(probes),
        "probe": discovery.names(probes),
        "sink": discovery.names(alerts),
        "gpu": PLACES,
    }
    for action in _actions(parser):
        if action.dest in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        elif action.dest in DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.dest in known and action.choices is None:
            action.choices = known[action.dest]  # this parser reads no words
    text: str = shtab.complete(parser, shell=shell)
    return text


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  # there is no other way, and shtab takes it too
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for each in dict.fromkeys(action.choices.values()):
                yield from _actions(each)
