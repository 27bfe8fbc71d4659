"""``gpud baseline``: what is usual for each stream, accepted as it is now, or learnt anew.

What is shown comes from the status document that the agent publishes; the agent decides.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpud import client, output
from gpud.arguments import OK, parser
from gpud.core.errors import ConfigError
from gpud.core.gpu_names import Label, uuid_of
from gpud.core.stats import human
from gpud.core.streams import CPU, EVERYTHING, Choice, StreamKey
from gpud.document.status import read
from gpud.place import document
from gpud.requests import AcceptRequest, ChoiceLine, ResetRequest
from gpud.show import model
from gpud.show.figures import verdict_on_driver
from gpud.words import name_of, standing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpud.core.settings import Settings
    from gpud.document.runs import StreamReport
    from gpud.document.status import Status
    from gpud.place import Place


def run(options: argparse.Namespace, place: Place) -> int:
    """Show, accept or reset baselines. Errors: as those of ``client.ask_running``."""
    settings = place.usable_settings()
    if options.action is None:
        options = parser("baseline").parse_args(["baseline", "show"])
    if options.action == "accept":
        return _accept(options, place, settings)
    if options.action == "reset":
        return _reset(options, place, settings)
    run_dir = Path(settings.run_dir)
    published = document(run_dir)
    if published is None:
        return place.report_absent(run_dir, as_json=options.json)
    status = read(published)
    streams = chosen(status, _choice(options))
    if options.json:
        rows = msgspec.to_builtins(streams)
        print(json.dumps({"schema_version": status.schema_version, "streams": rows}))
    else:
        print(output.drawn(table(streams, status)), end="")
    return OK


def chosen(status: Status, choice: Choice) -> list[StreamReport]:
    """Return the streams of a choice, whose GPU is as a person names it.

    Errors: ``ConfigError`` where there is none, with what there is.
    """
    if choice.gpu is not None:
        there = dict.fromkeys((stream.uuid or CPU for stream in status.streams), Label())
        there |= {uuid: Label(gpu.number, gpu.name) for uuid, gpu in status.gpus.items()}
        choice = replace(choice, gpu=uuid_of(choice.gpu, there))
    streams = [
        stream
        for stream in status.streams
        if choice.holds(StreamKey(stream.uuid, stream.probe, stream.mode))
    ]
    if status.streams and not streams:
        names = dict.fromkeys(f"{stream.probe} {stream.mode}" for stream in status.streams)
        raise ConfigError("nothing that is judged has this name", fix=f"one of: {', '.join(names)}")
    return streams


def table(streams: Sequence[StreamReport], status: Status) -> model.Block:
    """Make a row for each stream: what is usual, how the present stands, the driver's verdict."""
    if not streams:
        return model.Paragraph("nothing is judged yet: figures of the first runs have to come in")
    names = ("on", "probe", "usual", "now", "runs", "driver")
    columns = model.headings(*names, numbers=("usual", "runs"))
    return model.listing(columns, [_cells(stream, status) for stream in streams])


def _cells(stream: StreamReport, status: Status) -> tuple[str, ...]:
    usual, verdict = stream.usual, stream.verdict
    return (
        f"{status.place(stream.uuid)}{', on battery' if stream.on_battery else ''}",
        name_of(stream.probe, stream.mode),
        "-" if usual is None or stream.unit is None else human(usual, stream.unit, stream.mode),
        standing(stream).whole,
        f"{stream.judged:,}",
        f"{verdict.new_driver}: {verdict_on_driver(verdict).words}" if verdict else "",
    )


def _reset(options: argparse.Namespace, place: Place, settings: Settings) -> int:
    if (_choice(options) == EVERYTHING) != options.all:
        fix = "name it with --gpu, --probe or --mode, or give --all for everything"
        raise ConfigError("gpud baseline reset needs to know what to learn anew", fix=fix)
    (choice,) = _choices(place, settings, ResetRequest(choice=_choice(options)))
    output.say(f"to be learnt anew: {choice}")
    return OK


def _accept(options: argparse.Namespace, place: Place, settings: Settings) -> int:
    choice = _choice(options)
    nothing = choice == EVERYTHING and options.id is None
    if options.all and not nothing:
        fix = "leave out --all to accept only what is named"
        raise ConfigError("names and --all exclude each other", fix=fix)
    if nothing and not options.all:
        raise ConfigError(
            "gpud baseline accept needs to know what: an alert's ID, --probe, --gpu or --all",
            fix="`gpud alerts` lists the alerts with their IDs",
        )
    for accepted in _choices(place, settings, AcceptRequest(choice=choice, alert=options.id)):
        output.say(f"the current speed is usual from now on: {accepted}")
    return OK


def _choice(options: argparse.Namespace) -> Choice:
    return Choice(options.gpu, options.probe, options.mode)


def _choices(
    place: Place, settings: Settings, request: AcceptRequest | ResetRequest
) -> list[Choice]:
    answer = client.ask_running(place, settings, request)
    return [line.choice for line in answer if isinstance(line, ChoiceLine)]
