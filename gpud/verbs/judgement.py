"""Lines of ``gpud baseline show`` and ``gpud alerts``, made of the agent's document.

Imports nothing that takes time. Whatever comes from outside is made harmless here.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.causes import words as cause_words
from gpud.agent.regression.commands import CPU
from gpud.core.alerts import SHORT
from gpud.core.errors import GpudError
from gpud.core.stats import compared, human
from gpud.core.text import escaped, rezoned
from gpud.show.probewords import name_of
from gpud.show.standingwords import RATES
from gpud.show.units import day, moment, span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpud.agent.regression.commands import Choice
    from gpud.core.sample import StreamKey
    from gpud.show.document import Alert, Status, Stream, Verdict

WIDTH: Final = 100
COLUMNS: Final = ("probe", "normal", "now", "change", "runs", "driver")
LEAST_ROOM: Final = 20
LONGEST: Final = 36
"""Characters of a stream's name; ours have fewer, and a row has to stay within the width."""
UNKNOWN: Final = "-"


def chosen(document: Status, gpu: str | None, probe: str | None, mode: str | None) -> list[Stream]:
    """Return the streams of a document that are meant; ``gpu`` is a UUID's beginning, or "cpu".

    Errors: ``GpudError`` where none is, with what there is.
    """
    found = [
        one
        for one in document.streams
        if (one.uuid or CPU).lower().startswith((gpu or "").lower())
        and probe in {None, one.probe}
        and mode in {None, one.mode}
    ]
    if document.streams and not found:
        known = dict.fromkeys(f"{one.probe} {one.mode}" for one in document.streams)
        raise GpudError("nothing that is judged has this name", fix=f"one of: {', '.join(known)}")
    return found


def baseline_lines(streams: Sequence[Stream], document: Status) -> list[str]:
    """Say what is normal for each stream, what it is now, and what is known of its driver."""
    if not streams:
        return ["nothing is judged yet: figures of the first runs have to come in"]
    several = _several(document.streams)
    places = [document.place(one.uuid) for one in streams]
    rows = [_baseline(one, several) for one in streams]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    shown = _aligned(COLUMNS, widths)
    for number, (place, row) in enumerate(zip(places, rows, strict=True)):
        if not number or places[number - 1] != place:
            shown.append(f"  {escaped(place)}")
        shown += _aligned(row, widths)
    return shown


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Write a row; its last cell goes on below itself where the line would be too long."""
    *cells, last = row
    start = "  ".join(["", *(c.ljust(w) for c, w in zip(cells, widths[:-1], strict=True)), ""])
    first, *rest = wrap(last, max(WIDTH - len(start), LEAST_ROOM)) or [""]
    return [f"{start}{first}".rstrip(), *(" " * len(start) + more for more in rest)]


def _several(streams: Iterable[Stream]) -> frozenset[str]:
    """Return the probes of whose method there is more than one version."""
    probes = [probe for probe, _ in {(one.probe, one.version) for one in streams}]
    return frozenset(probe for probe in probes if probes.count(probe) > 1)


def _baseline(one: Stream, several: Collection[str]) -> tuple[str, ...]:
    slowdown, usual, unit = one.slowdown, one.usual, one.unit
    now = None
    if slowdown is not None and usual is not None and unit is not None:
        now = usual / slowdown if unit in RATES else usual * slowdown
    cells = (
        _name(one, several)[:LONGEST],
        UNKNOWN if usual is None or unit is None else human(usual, unit),
        UNKNOWN if now is None or unit is None else human(now, unit),
        UNKNOWN if slowdown is None else compared(slowdown),
        f"{one.judged:,}",
        "" if one.verdict is None else _verdict(one.verdict, still=bool(one.open)),
    )
    return tuple(map(escaped, cells))


def _verdict(verdict: Verdict, *, still: bool) -> str:
    """Say what is known of the latest driver: "576.02: regressed since 2026-11-05".

    ``still``: whether the stream is slower than what is taken for normal.
    """
    state, since = verdict.state, day(verdict.since_s)
    if state == "regressed" and not still:
        return f"{verdict.new_driver}: regressed on {since}, over or accepted"
    words = {"no_change": "no change seen", "none": "no verdict"}.get(state, state)
    if verdict.limit is not None and state in {"no_change", "undecided"}:
        words += f" (+-{100 * verdict.limit:.0f} %)"
    based = f", {verdict.samples} runs" if state in {"learning", "undecided"} else ""
    return f"{verdict.new_driver}: {words}{based} since {since}"


def choice_name(choice: Choice, document: Status) -> str:
    """Name what a person chose: "GPU 0 launch submit", "launch", "everything"."""
    what = name_of(choice.probe, choice.mode or choice.probe) if choice.probe else choice.mode or ""
    gpu = None if choice.gpu == CPU else choice.gpu
    where = "" if choice.gpu is None else document.place(gpu)
    return escaped(f"{where} {what}".strip()) or "everything"


def accept_lines(choices: Sequence[Choice], document: Status) -> list[str]:
    """List what is slower of what was chosen, and what is still learning and cannot be accepted.

    Errors: ``GpudError`` where all of it is still learning.
    """
    streams = [
        one
        for one in document.streams
        if any(each.fits((one.uuid or CPU, one.probe, one.mode)) for each in choices)
    ]
    learning = [one for one in streams if _learning(one)]
    names = ", ".join(dict.fromkeys(f"{document.place(one.uuid)} {_name(one)}" for one in learning))
    if streams and len(learning) == len(streams):
        raise GpudError(
            f"nothing to accept, what is usual is still being learnt: {names}",
            fix="wait for more runs; `gpud baseline show` counts them",
        )
    shown = []
    for one in streams:
        if one.open:
            name, usual, now, change, *_ = _baseline(one, ())
            where = escaped(document.place(one.uuid))
            shown.append(f"  {where} {name}: {usual} -> {now}, {change}")
    shown = shown or ["  nothing of it is slower than usual"]
    if names:
        shown += _within(escaped(f"  still learning, not accepted: {names}"))
    return shown


def _learning(one: Stream) -> bool:
    """Return whether a stream has nothing to accept yet: no level and no new driver on trial."""
    trial = one.verdict is not None and one.verdict.state in {"learning", "undecided"}
    return one.slowdown is None and not one.open and not trial


def alerts(document: Status, *, ended: bool) -> list[Alert]:
    """Return the alerts of a document, those that fire first; ``ended`` ones only if wanted."""
    found = [one for one in document.alerts if ended or one.ends_s is None]
    return sorted(found, key=lambda one: (one.ends_s is not None, -one.starts_s))


def alert_lines(found: Sequence[Alert], document: Status) -> list[str]:
    """Say what is wrong: what and how much, since when, the evidence, the causes, the fix."""
    firing = [one for one in found if one.ends_s is None]
    names = _short([one.fingerprint for one in found])
    shown = [
        f"{len(firing)} alerts fire"
        if len(firing) > 1
        else f"{'1' if firing else 'no'} alert fires"
    ]
    for one in found:
        shown += ["", *_alert(one, names[one.fingerprint], document)]
    unseen = [one for one in firing if one.acknowledged_s is None]
    if unseen:
        name = names[unseen[0].fingerprint]
        normal = f"   it is normal now: gpud baseline accept {name}" if unseen[0].evidence else ""
        shown += ["", f"  seen it: gpud alerts ack {name}{normal}"]
    return [line for text in shown for line in _within(rezoned(escaped(text), moment))]


def _alert(one: Alert, name: str, document: Status) -> Iterator[str]:
    until = "" if one.ends_s is None else f", ended {moment(one.ends_s)}"
    seen = "" if one.acknowledged_s is None else f", acknowledged {moment(one.acknowledged_s)}"
    yield f"  {name}  {one.name}, {one.severity}, since {moment(one.began_s)}{until}{seen}"
    yield f"    {one.summary}"
    for piece in one.evidence:
        before, after = human(piece.before, piece.unit), human(piece.after, piece.unit)
        yield (
            f"    {document.place(piece.stream.gpu)} {_name(piece.stream)}: {before} -> {after}, "
            f"{100 * (piece.slowdown - 1):.0f} % slower ({span(piece.low, piece.high)}), "
            f"{piece.samples} samples"
        )
    for cause in one.causes:
        yield f"    because: {cause_words(cause)}"
    if one.fix:
        yield f"    fix: {one.fix}"


def _short(fingerprints: Sequence[str]) -> dict[str, str]:
    """Give each fingerprint as it is shown: its beginning, where that is like no other's."""
    begun = [one[:SHORT] for one in set(fingerprints)]
    return {one: one if begun.count(one[:SHORT]) > 1 else one[:SHORT] for one in fingerprints}


def _name(stream: Stream | StreamKey, several: Collection[str] = ()) -> str:
    """Name a stream beside its GPU, as the options of ``gpud baseline`` do."""
    version = f" v{stream.version}" if stream.probe in several else ""
    name = name_of(stream.probe, stream.mode)
    return f"{name}{version}{', on battery' if stream.on_battery else ''}"


def _within(text: str) -> list[str]:
    """Break a line that is too long, behind its own indent."""
    if len(text) <= WIDTH:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
