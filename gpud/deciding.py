"""``gpud baseline`` and ``gpud alerts``: their words on the command line, and what they do.

What is shown comes from the running agent's document; what is decided goes into the history.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpud import judgement
from gpud.core.errors import ConfigError, GpudError
from gpud.core.text import escaped
from gpud.place import legible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpud.core.commands import Choice

SHOWN: Final = (None, "show")
"""Actions that decide nothing; ``gpud alerts`` alone shows."""
ACTIONS: Final = {
    "show": "say what is normal, and how the present compares",
    "accept": "take the current speed for normal: alerts about it end",
    "reset": "forget what was normal and learn it anew",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What to print, and whether it tells of a problem."""

    text: str
    problem: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person decides. ``names``: an alert, or a probe and its mode.

    ``document``: the running agent's, which hears of it at once; None where none runs.
    """

    action: str
    choice: Choice
    names: tuple[str, ...]
    document: Mapping[str, Any] | None


def add(verb: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add both verbs to the parser."""
    baseline = verb("baseline", "say what is normal for each probe, or decide about it")
    actions = baseline.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--gpu", metavar="INDEX|UUID", help="of this GPU only, or of the cpu")
        action.add_argument("--probe", metavar="NAME", help="of this probe only")
        action.add_argument("--mode", metavar="NAME", help="of this mode only")
        if name == "show":
            action.add_argument("--json", action="store_true", help="print one JSON document")
        else:
            action.add_argument("--all", action="store_true", help="of everything")
        if name == "accept":
            action.add_argument(
                "what",
                nargs="*",
                metavar="ID|PROBE",
                help="an alert's ID, or a probe and its mode",
            )
    alerts = verb("alerts", "say what is wrong now, since when and why")
    alerts.add_argument("--all", action="store_true", help="also what ended in the last day")
    alerts.add_argument("--json", action="store_true", help="print one JSON document")
    actions = alerts.add_subparsers(dest="action", metavar="[ACTION]")
    text = "say that you have seen one: no more reminders"
    ack = actions.add_parser("ack", help=text, description=text)
    ack.add_argument("id", metavar="ID", help="as `gpud alerts` shows it, or its beginning")
    text = "send a test alert to one sink, or to all of them"
    test = actions.add_parser("test", help=text, description=text)
    test.add_argument("sink", nargs="?", metavar="SINK", help="such as webhook (default: all)")


def shown(arguments: argparse.Namespace, document: Mapping[str, Any]) -> Shown:
    """Draw what is asked for. Errors: ``GpudError`` for a GPU that there is not."""
    version = document["schema_version"]
    if arguments.verb == "alerts":
        alerts = judgement.alerts(document, ended=arguments.all)
        firing = any(one["ends_s"] is None for one in alerts)
        if arguments.json:
            return Shown(json.dumps({"schema_version": version, "alerts": alerts}), firing)
        return Shown("\n".join(judgement.alert_lines(alerts, document)), firing)
    choice = _choice(arguments, document)
    streams = judgement.chosen(document, choice.gpu, choice.probe, choice.mode)
    if arguments.json:
        return Shown(json.dumps({"schema_version": version, "streams": streams}))
    return Shown("\n".join(judgement.baseline_lines(streams, document)))


def wanted(arguments: argparse.Namespace, document: Mapping[str, Any] | None) -> Wanted:
    """Read what is to be decided. Errors: ``ConfigError`` where that is not clear enough."""
    from gpud.core.commands import EVERYTHING

    if arguments.action == "ack":
        return Wanted("ack", EVERYTHING, (arguments.id,), document)
    choice, names = _choice(arguments, document), tuple(getattr(arguments, "what", ()))
    nothing = choice == EVERYTHING and not names
    if arguments.action == "reset" and nothing != arguments.all:
        raise ConfigError(
            "gpud baseline reset needs to know what to learn anew",
            fix="name it with --gpu, --probe or --mode, or give --all for everything",
        )
    if arguments.action == "accept" and (arguments.all and not nothing):
        raise ConfigError(
            "names and --all exclude each other",
            fix="leave out --all to accept only what is named",
        )
    if arguments.action == "accept" and nothing and not (arguments.all or _terminal()):
        raise ConfigError(
            "gpud baseline accept needs to know what: an alert's ID, a probe, or --all",
            fix="`gpud alerts` lists the alerts with their IDs",
        )
    return Wanted(arguments.action, choice, names, document)


def decided(wanted: Wanted, directory: Path, now_s: float) -> str:
    """Write it into the history, and give what to say. Errors: ``GpudError``, ``StoreError``."""
    from gpud.agent import commands

    if wanted.action == "ack":
        whole = commands.acknowledge(directory, *wanted.names, now_s=now_s)
        said = f"{whole} is acknowledged: no more reminders"
    elif wanted.action == "accept":
        return _accepted(wanted, directory, now_s)
    else:
        said = f"to be learnt anew: {commands.reset(directory, wanted.choice, now_s=now_s)}"
    when = "within seconds" if wanted.document else "at its next start"
    return f"{said}\nTakes effect {when}."


def _accepted(wanted: Wanted, directory: Path, now_s: float) -> str:
    """Accept what is meant, and list it; on a terminal the list comes first, and a question."""
    from gpud.agent import commands

    choices = commands.resolve_choices(directory, wanted.names, wanted.choice, now_s=now_s)
    document = wanted.document or {}
    with legible():
        names = ", ".join(judgement.choice_name(one, document) for one in choices)
        listed = ["  gpud is not running, so it is not known what is slower"]
        if wanted.document:
            listed = judgement.accept_lines(choices, document)
    if _terminal():
        print(f"This accepts the current speed as normal for: {names}")
        print("\n".join(listed))
        print("Accept? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return "Nothing was accepted."
        listed = []
    commands.accept(directory, *choices, now_s=now_s)
    when = "within seconds" if wanted.document else "when gpud starts next"
    accepted = f"Accepted the current speed as normal for: {names}"
    return "\n".join([accepted, *listed, f"Takes effect {when}."])


def _terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _choice(arguments: argparse.Namespace, document: Mapping[str, Any] | None) -> Choice:
    from gpud.core.commands import Choice

    return with_uuid(Choice(arguments.gpu, arguments.probe, arguments.mode), document)


def with_uuid(choice: Choice, document: Mapping[str, Any] | None) -> Choice:
    """Put the UUID in the place of a GPU's number; what is no number stays.

    Errors: ``GpudError`` for a number that no GPU has, or while nobody knows the numbers.
    """
    if choice.gpu is None or not (choice.gpu.isascii() and choice.gpu.isdigit()):
        return choice
    if document is None:
        raise GpudError(
            f"which GPU has the number {choice.gpu} is known while gpud runs",
            fix="give its UUID, or the beginning of it",
        )
    gpus = document.get("gpus") or {}
    numbers = {gpu["number"]: uuid for uuid, gpu in gpus.items()}
    if int(choice.gpu) not in numbers:
        known = ", ".join(f"{n} ({escaped(gpus[u]['name'])})" for n, u in sorted(numbers.items()))
        raise GpudError(f"there is no GPU {choice.gpu}", fix=f"one of: {known}" if known else None)
    return replace(choice, gpu=numbers[int(choice.gpu)])
