"""``gpud baseline``: what is usual for each stream, accepted as it is now, or learnt anew.

What is shown comes from the status document that the agent publishes; the agent decides.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpud import client, output
from gpud.agent.regression.commands import CPU, EVERYTHING, Choice, with_uuid
from gpud.agent.regression.detector.parameters import SETTLE
from gpud.arguments import OK, parser
from gpud.core.errors import ConfigError, GpudError
from gpud.core.stats import compared, human
from gpud.core.text import escaped
from gpud.document.status import read
from gpud.place import document, legible
from gpud.requests import AcceptRequest, ChoiceLine, ResetRequest
from gpud.show import figures, model
from gpud.units import day
from gpud.words import RATES, name_of, runs_learned

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from gpud.core.sample import StreamKey
    from gpud.core.settings import Settings
    from gpud.document.status import Status
    from gpud.document.streams import StreamReport, VerdictReport
    from gpud.place import Place

LONGEST: Final = 36
"""Characters of a stream's name; ours have fewer, and a row has to stay within the width."""
UNKNOWN: Final = "-"


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
    with legible():
        status = read(published)
        choice = _choice(options)
        choice = replace(choice, gpu=with_uuid(choice.gpu, status.gpus))
        streams = chosen(status, choice)
        rows = published_rows(published.get("streams"), status.streams, streams)
        shown = output.drawn(*tables(streams, status))
    if options.json:
        print(json.dumps({"schema_version": published["schema_version"], "streams": rows}))
    else:
        print(shown, end="")
    return OK


def published_rows(published: Any, parts: Sequence[object], chosen: Sequence[object]) -> list[Any]:  # noqa: ANN401  # JSON
    """Return what the agent published of the chosen parts, with what this release does not read."""
    rows = list(zip(published or (), parts, strict=True))
    return [row for each in chosen for row, part in rows if part is each]


def chosen(status: Status, choice: Choice) -> list[StreamReport]:
    """Return the streams of a choice, whose GPU is a UUID's beginning, or "cpu".

    Errors: ``ConfigError`` where there is none, with what there is.
    """
    streams = [
        stream
        for stream in status.streams
        if (stream.uuid or CPU).lower().startswith((choice.gpu or "").lower())
        and choice.probe in {None, stream.probe}
        and choice.mode in {None, stream.mode}
    ]
    if status.streams and not streams:
        names = dict.fromkeys(f"{stream.probe} {stream.mode}" for stream in status.streams)
        raise ConfigError("nothing that is judged has this name", fix=f"one of: {', '.join(names)}")
    return streams


def tables(streams: Sequence[StreamReport], status: Status) -> list[model.Block]:
    """Make a table for each GPU and the CPU: what is usual, what is now, the driver's verdict."""
    if streams and all(stream.usual is None for stream in streams):
        return [model.Paragraph(_learned(streams))]
    versions = Counter(probe for probe, _ in {(s.probe, s.version) for s in status.streams})
    rows: dict[str, list[Sequence[str]]] = {}
    for stream in streams:
        rows.setdefault(status.place(stream.uuid), []).append(_cells(stream, versions))
    names = ("probe", "usual", "now", "change", "runs", "driver")
    columns = model.headings(*names, numbers=names[1:5])
    nothing = "nothing is judged yet: figures of the first runs have to come in"
    cards = [model.Card("", where, [model.listing(columns, each)]) for where, each in rows.items()]
    return [*cards] or [model.Paragraph(nothing)]


def stream_name(stream: StreamReport | StreamKey, versions: Mapping[str, int]) -> str:
    """Name a stream as the options do; its version where its probe has more than one."""
    version = f" v{stream.version}" if versions.get(stream.probe, 1) > 1 else ""
    name = name_of(stream.probe, stream.mode)
    return f"{name}{version}{', on battery' if stream.on_battery else ''}"


def _cells(stream: StreamReport, versions: Mapping[str, int]) -> tuple[str, ...]:
    slowdown, usual, unit = stream.slowdown, stream.usual, stream.unit
    level = now = UNKNOWN
    if usual is not None and unit is not None:
        level = human(usual, unit, stream.mode)
        if slowdown is not None:
            latest = usual / slowdown if unit in RATES else usual * slowdown
            now = human(latest, unit, stream.mode)
    return (
        stream_name(stream, versions)[:LONGEST],
        level,
        now,
        UNKNOWN if slowdown is None else compared(slowdown),
        f"{stream.judged:,}",
        "" if stream.verdict is None else _verdict(stream.verdict, still=bool(stream.open)),
    )


def _learned(streams: Sequence[StreamReport]) -> str:
    """Say in a sentence how far learning is where nothing is usual yet."""
    most = max(streams, key=lambda stream: stream.judged)
    return (
        f"What is usual is still being learned: {runs_learned(most)} runs so far, of "
        f"{name_of(most.probe, most.mode)}; the first {SETTLE} after a start do not count."
    )


def _verdict(verdict: VerdictReport, *, still: bool) -> str:
    """Describe the verdict on the latest driver; ``still``: the stream is slower now too."""
    over = "" if still or verdict.state != "regressed" else ", over or accepted"
    words = figures.verdict_on_driver(verdict).words
    return f"{verdict.new_driver} since {day(verdict.since_s)}: {words}{over}"


def _reset(options: argparse.Namespace, place: Place, settings: Settings) -> int:
    if (_choice(options) == EVERYTHING) != options.all:
        fix = "name it with --gpu, --probe or --mode, or give --all for everything"
        raise ConfigError("gpud baseline reset needs to know what to learn anew", fix=fix)
    request = ResetRequest(gpu=options.gpu, probe=options.probe, mode=options.mode)
    (choice,) = _choices(place, settings, request)
    output.say(f"to be learnt anew: {choice}")
    return OK


def _accept(options: argparse.Namespace, place: Place, settings: Settings) -> int:
    """Accept the current speed; on a terminal it is listed, and a person has to agree."""
    _refuse_unclear(options)
    gpu, probe, mode = _choice(options).parts
    names = tuple(options.what)
    request = AcceptRequest(names=names, gpu=gpu, probe=probe, mode=mode, preview=True)
    choices = _choices(place, settings, request)
    published = document(Path(settings.run_dir))
    if published is None:
        raise place.absence(Path(settings.run_dir))
    with legible():
        status = read(published)
        name = ", ".join(_choice_name(choice, status) for choice in choices)
        listed = "\n".join(_accept_lines(choices, status))
    confirms = _on_terminal()
    if confirms:
        output.say(f"This accepts the current speed as usual for: {name}\n{listed}")
        print("Accept? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            output.say("Nothing was accepted.")
            return OK
    for choice in choices:
        request = AcceptRequest(gpu=choice.gpu, probe=choice.probe, mode=choice.mode)
        _choices(place, settings, request)
    accepted = f"Accepted the current speed as usual for: {name}"
    output.say(accepted if confirms else f"{accepted}\n{listed}")
    return OK


def _refuse_unclear(options: argparse.Namespace) -> None:
    nothing = _choice(options) == EVERYTHING and not options.what
    if options.all and not nothing:
        fix = "leave out --all to accept only what is named"
        raise ConfigError("names and --all exclude each other", fix=fix)
    if nothing and not (options.all or _on_terminal()):
        raise ConfigError(
            "gpud baseline accept needs to know what: an alert's ID, a probe, or --all",
            fix="`gpud alerts` lists the alerts with their IDs",
        )


def _choice(options: argparse.Namespace) -> Choice:
    return Choice(options.gpu, options.probe, options.mode)


def _choices(
    place: Place, settings: Settings, request: AcceptRequest | ResetRequest
) -> list[Choice]:
    answer = client.ask_running(place, settings, request)
    streams = (line for line in answer if isinstance(line, ChoiceLine))
    return [Choice(line.gpu, line.probe, line.mode) for line in streams]


def _choice_name(choice: Choice, status: Status) -> str:
    """Name what a person chose: "GPU 0 launch submit", "launch", "everything"."""
    what = name_of(choice.probe, choice.mode or choice.probe) if choice.probe else choice.mode or ""
    where = "" if choice.gpu is None else status.place(None if choice.gpu == CPU else choice.gpu)
    return escaped(f"{where} {what}".strip()) or "everything"


def _accept_lines(choices: Sequence[Choice], status: Status) -> list[str]:
    """List what is slower of what was chosen, and what is still learning and cannot be accepted.

    Errors: ``GpudError`` where all of it is still learning.
    """
    streams = [
        stream
        for stream in status.streams
        if any(choice.fits((stream.uuid or CPU, stream.probe, stream.mode)) for choice in choices)
    ]
    learning = [stream for stream in streams if _learning(stream)]
    names = ", ".join(
        dict.fromkeys(f"{status.place(s.uuid)} {stream_name(s, {})}" for s in learning)
    )
    if streams and len(learning) == len(streams):
        raise GpudError(
            f"nothing to accept, what is usual is still being learnt: {names}",
            fix="wait for more runs; `gpud baseline show` counts them",
        )
    shown = []
    for stream in (stream for stream in streams if stream.open):
        name, usual, now, change, *_ = _cells(stream, {})
        shown.append(f"  {escaped(status.place(stream.uuid))} {name}: {usual} -> {now}, {change}")
    shown = shown or ["  nothing of it is slower than usual"]
    if names:
        shown.append(escaped(f"  still learning, not accepted: {names}"))
    return shown


def _learning(stream: StreamReport) -> bool:
    """Return whether a stream has nothing to accept yet: no level and no new driver on trial."""
    trial = stream.verdict is not None and stream.verdict.state in {"learning", "undecided"}
    return stream.slowdown is None and not stream.open and not trial


def _on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
