"""``gpud baseline``, ``gpud alerts`` and ``gpud gpus``: what is shown, and what is decided.

What is shown comes from the status document that the agent publishes; what is decided, it does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud import verbs
from gpud.agent.regression.commands import EVERYTHING, Choice
from gpud.core.errors import ConfigError, GpudError
from gpud.core.requests import (
    AcceptRequest,
    AckRequest,
    AlertLine,
    ChoiceLine,
    ForgetRequest,
    GpuLine,
    ResetRequest,
)
from gpud.core.text import escaped
from gpud.place import document, legible
from gpud.show.document import read
from gpud.verbs import judgement

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from gpud.core.settings import Settings
    from gpud.place import Place
    from gpud.show.document import Status

NAME_IT: Final = "name it with --gpu, --probe or --mode, or give --all for everything"


def shown(options: argparse.Namespace, published: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text that is asked for, and whether it says that something is wrong.

    Errors: ``GpudError`` for a GPU that there is not.
    """
    version = published["schema_version"]
    status = read(published)
    if options.verb == "alerts":
        alerts = judgement.alerts(status, ended=options.all)
        firing = any(alert.ends_s is None for alert in alerts)
        if options.json:
            rows = _rows(published.get("alerts"), status.alerts, alerts)
            return json.dumps({"schema_version": version, "alerts": rows}), firing
        return "\n".join(judgement.alert_lines(alerts, status)), firing
    choice = with_uuid(Choice(options.gpu, options.probe, options.mode), status)
    streams = judgement.chosen(status, choice.gpu, choice.probe, choice.mode)
    if options.json:
        rows = _rows(published.get("streams"), status.streams, streams)
        return json.dumps({"schema_version": version, "streams": rows}), False
    return "\n".join(judgement.baseline_lines(streams, status)), False


def _rows(published: Any, parts: Sequence[object], chosen: Sequence[object]) -> list[Any]:  # noqa: ANN401  # JSON
    """Return what the agent published of the chosen parts, with what this release does not read."""
    rows = list(zip(published or (), parts, strict=True))
    return [row for one in chosen for row, part in rows if part is one]


def with_uuid(choice: Choice, status: Status) -> Choice:
    """Put the UUID in the place of a GPU's number; what is no number stays.

    Errors: ``GpudError`` for a number that no GPU has.
    """
    if choice.gpu is None or not (choice.gpu.isascii() and choice.gpu.isdigit()):
        return choice
    numbers = {gpu.number: (uuid, gpu.name) for uuid, gpu in status.gpus.items()}
    if int(choice.gpu) not in numbers:
        uuids = ", ".join(f"{n} ({escaped(name)})" for n, (_, name) in sorted(numbers.items()))
        raise GpudError(f"there is no GPU {choice.gpu}", fix=f"one of: {uuids}" if uuids else None)
    return replace(choice, gpu=numbers[int(choice.gpu)][0])


def acknowledge(options: argparse.Namespace, place: Place, settings: Settings) -> str:
    """Acknowledge an alert, and return what was done. Errors: as those of ``verbs.ask``."""
    lines = verbs.ask(place, settings, AckRequest(alert=options.id))
    done = [line.fingerprint for line in lines if isinstance(line, AlertLine)]
    return f"{done[0]} is acknowledged: no more reminders"


def forget(options: argparse.Namespace, place: Place, settings: Settings) -> str:
    """Forget GPUs, and return which. Errors: likewise."""
    lines = list(verbs.ask(place, settings, ForgetRequest(gpus=tuple(options.uuids))))
    gpus = [line for line in lines if isinstance(line, GpuLine)]
    words = [f"{gpu.name} ({gpu.uuid}) is forgotten" for gpu in gpus]
    words.append("what is there is expected again" if gpus else "there was no GPU to forget")
    return "\n".join(words)


def reset(options: argparse.Namespace, place: Place, settings: Settings) -> str:
    """Learn baselines anew, and return which. Errors: likewise, ``ConfigError`` for none named."""
    if (Choice(options.gpu, options.probe, options.mode) == EVERYTHING) != options.all:
        raise ConfigError("gpud baseline reset needs to know what to learn anew", fix=NAME_IT)
    request = ResetRequest(gpu=options.gpu, probe=options.probe, mode=options.mode)
    (choice,) = _choices(place, settings, request)
    return f"to be learnt anew: {choice}"


def accept(options: argparse.Namespace, place: Place, settings: Settings) -> str:
    """Accept the current speed, and return of what; on a terminal that is listed and asked before.

    Errors: likewise.
    """
    _refuse_unclear(options)
    request = AcceptRequest(
        names=tuple(options.what),
        gpu=options.gpu,
        probe=options.probe,
        mode=options.mode,
        preview=True,
    )
    choices = _choices(place, settings, request)
    published = document(Path(settings.run_dir))
    if published is None:
        raise GpudError("gpud has not published its status yet", fix="try again in a few seconds")
    with legible():
        status = read(published)
        names = ", ".join(judgement.choice_name(choice, status) for choice in choices)
        listed = judgement.accept_lines(choices, status)
    if _terminal():
        print(f"This accepts the current speed as normal for: {names}")
        print("\n".join(listed))
        print("Accept? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return "Nothing was accepted."
        listed = []
    for choice in choices:
        _choices(
            place, settings, AcceptRequest(gpu=choice.gpu, probe=choice.probe, mode=choice.mode)
        )
    return "\n".join([f"Accepted the current speed as normal for: {names}", *listed])


def _refuse_unclear(options: argparse.Namespace) -> None:
    nothing = Choice(options.gpu, options.probe, options.mode) == EVERYTHING and not options.what
    if options.all and not nothing:
        raise ConfigError(
            "names and --all exclude each other",
            fix="leave out --all to accept only what is named",
        )
    if nothing and not (options.all or _terminal()):
        raise ConfigError(
            "gpud baseline accept needs to know what: an alert's ID, a probe, or --all",
            fix="`gpud alerts` lists the alerts with their IDs",
        )


def _choices(
    place: Place, settings: Settings, request: AcceptRequest | ResetRequest
) -> list[Choice]:
    return [
        Choice(line.gpu, line.probe, line.mode)
        for line in verbs.ask(place, settings, request)
        if isinstance(line, ChoiceLine)
    ]


def _terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
