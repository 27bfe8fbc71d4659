"""The report for a terminal: plain lines of at most ``WIDTH`` columns, each with a style. Pure."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, Final, TypeVar

from gpud.core.stats import compared, human
from gpud.core.text import escaped
from gpud.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo

    from gpud.core.streams import StreamKey
    from gpud.report.model import Level, Report, Track

T = TypeVar("T")

Line = tuple[str, str]
"""Text and the style that rich gives it; both may be empty."""

WIDTH: Final = 100
PLAIN, HEAD, BAD, QUIET = "", "bold", "red", "dim"
LONGEST: Final = 24
"""Characters of a foreign word in a table: a driver's version has six, a hostile one any number."""
MOST: Final = 12
"""Rows of a list that are shown; the page and --json have all of them."""
FIGURE: Final = re.compile(r"(\d) (?=\S)")
LEFT_OUT: Final = 0.05
"""Share of due runs that may be missing without a word."""


def lines(report: Report, zone: tzinfo | None = None) -> list[Line]:
    """Draw the report. ``zone`` None is the local time."""
    when = _Clock(zone)
    since, until = (words.day(at_s, zone) for at_s in (report.since_s, report.until_s))
    top = [
        (f"gpud report: {since} to {until}", HEAD),
        ("", PLAIN),
        *(
            (line, BAD if report.headline.worse else HEAD)
            for line in _folded(report.headline.words)
        ),
    ]
    parts: tuple[tuple[str, Iterable[Line]], ...] = (
        ("Drivers", _drivers(report, when)),
        ("What changed", _events(report, when)),
        ("What you were told", _told(report, when)),
        ("Stopped working", _lost(report, when)),
        ("Verdicts on drivers", _verdicts(report)),
        ("Moved, and nobody was told", _shifts(report, when)),
        ("Figures", _figures(report)),
        ("Runs that are kept apart", _marked(report)),
        ("Failed runs", _failures(report, when)),
        ("Nothing ran", _gaps(report, when)),
        ("What gpud took", _cost(report)),
        ("Not taken into account", ((f"  {note}", PLAIN) for note in report.notes)),
    )
    for title, part in parts:
        if shown := list(part):
            top += [("", PLAIN), (title, HEAD), *shown]
    return [(line, style) for text, style in top for line in _within(escaped(text))]


class _Clock:
    """Writes moments in one time zone."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone

    def __call__(self, at_s: float) -> str:
        return words.moment(at_s, self._zone)


def _drivers(report: Report, when: _Clock) -> Iterator[Line]:
    rows = [
        (
            _cut(stretch.driver or words.UNKNOWN_DRIVER),
            when(stretch.since_s),
            "now" if words.lasts(stretch, report) else when(stretch.until_s),
            words.duration(stretch.until_s - stretch.since_s),
            f"{words.count(stretch.runs)} runs",
        )
        for stretch in report.stretches
    ]
    yield from _table(("driver", "from", "to", "", ""), rows)


def _events(report: Report, when: _Clock) -> Iterator[Line]:
    for event in _latest(report.events):
        yield f"  {when(event.at_s)}  {event.words}", PLAIN
    yield from _more(report.events)


def _told(report: Report, when: _Clock) -> Iterator[Line]:
    for told in _latest(report.told):
        ended = "still so" if told.ends_s is None else f"until {when(told.ends_s)}"
        seen = ", acknowledged" if told.acknowledged else ""
        style = BAD if told.ends_s is None else PLAIN
        yield f"  {when(told.starts_s)}  {told.name}, {told.severity}, {ended}{seen}", style
        yield f"    {told.summary}", PLAIN
        if told.fix and told.ends_s is None:
            yield f"    fix: {told.fix}", PLAIN
    yield from _more(report.told)


def _lost(report: Report, when: _Clock) -> Iterator[Line]:
    for one in _latest(report.lost):
        where = f"{_cut(one.probe)} on {_gpu(report, one.gpu)}"
        back = "" if one.back_s is None else f"; worked again {when(one.back_s)}"
        text = (
            f"  {where}: worked under driver {_cut(one.old)}, failed {one.failed} times under "
            f"{_cut(one.new)} since {when(one.since_s)} ({_cut(one.reason)}){back}"
        )
        yield text, BAD if one.back_s is None else PLAIN
    yield from _more(report.lost)


def _verdicts(report: Report) -> Iterator[Line]:
    """Group by update and outcome: ten streams without a change are one line."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in report.verdicts:
        named = _named(report, one.key)
        alike = groups.setdefault((one.old, one.new), {})
        alike.setdefault(one.words, []).append(named)
    worse = {(one.old, one.new, one.words) for one in report.verdicts if one.worse}
    for (old, new), outcomes in groups.items():
        yield f"  {_cut(old)} -> {_cut(new)}", PLAIN
        for said, streams in outcomes.items():
            style = BAD if (old, new, said) in worse else PLAIN
            if len(streams) > 1 and style != BAD:
                yield f"    {len(streams)} streams: {said}", style
            else:
                yield from ((f"    {named}: {said}", style) for named in streams)


def _shifts(report: Report, when: _Clock) -> Iterator[Line]:
    """Group what moved together: the modes of one probe are one line."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in report.shifts:
        over = ", over by now" if one.over else ""
        group = groups.setdefault((when(one.at_s), one.words, f"{one.why}{over}"), [])
        group.append(f"{_named(report, one.key)} {compared(one.slowdown)}")
    for (moment, said, why), moved in _latest(list(groups.items())):
        yield f"  {moment}  {said} ({why}):", PLAIN
        yield f"    {', '.join(moved)}", PLAIN
    yield from _more(list(groups))


def _figures(report: Report) -> Iterator[Line]:
    places = dict.fromkeys(track.key.gpu for track in report.tracks)
    header = ("probe", "driver", "runs", "median", "p10 to p90", "change")
    rows: list[tuple[str, ...]] = []
    heads: dict[int, str] = {}
    for place in places:
        heads[len(rows)] = _gpu(report, place)
        for track in report.tracks:
            if track.key.gpu == place:
                rows += _levels(report, track)
    drawn = list(_table(header, rows))
    for number, line in enumerate(drawn):
        if number - 1 in heads:
            yield f"  {heads[number - 1]}", HEAD
        yield line
    if rows:
        yield "  medians of single runs; runs that are kept apart are in none of these", QUIET
        yield (
            "  a change is of all runs under a driver; that of an alert, of those that decided it",
            QUIET,
        )


def _levels(report: Report, track: Track) -> Iterator[tuple[str, ...]]:
    for number, level in enumerate(track.levels):
        name = _cut(words.stream(track.key, report.several), 32) if not number else ""
        yield (name, *cells(report, track, level))


def cells(report: Report, track: Track, level: Level) -> tuple[str, str, str, str, str]:
    """Write a level: driver, runs, median, spread, and how it is against the one before."""
    return (
        _cut(report.stretches[level.stretch].driver or words.UNKNOWN_DRIVER),
        words.count(level.n),
        human(level.median, track.unit),
        words.span(level.p10, level.p90, track.unit),
        "" if level.slowdown is None else words.against(level.slowdown),
    )


def _marked(report: Report) -> Iterator[Line]:
    rows = [
        (
            _cut(_gpu(report, one.gpu), 40),
            _cut(report.stretches[one.stretch].driver or words.UNKNOWN_DRIVER),
            words.count(one.runs),
            *(words.share(ratio) for ratio in (one.busy, one.low, one.cold, one.resume)),
        )
        for one in report.marked
    ]
    yield from _table(("GPU", "driver", "runs", "busy", "low", "cold", "resume"), rows)


def _failures(report: Report, when: _Clock) -> Iterator[Line]:
    for one in report.failures[:MOST]:
        where = f"{_cut(one.probe)} on {_gpu(report, one.gpu)}"
        often = f"{words.count(one.count)} x {_cut(one.reason)}, last {when(one.last_s)}"
        yield f"  {where}: {often}: {one.detail[:200]}", PLAIN
    if len(report.failures) > MOST:
        yield f"  and {len(report.failures) - MOST} more kinds", PLAIN
    for gap in report.left:
        if gap.due and 1 - gap.runs / gap.due > LEFT_OUT:
            where = f"{_cut(gap.probe)} on {_gpu(report, gap.gpu)}"
            out = f"about {words.share(1 - gap.runs / gap.due)} of {words.count(gap.due)} due runs"
            yield f"  {where}: {out} were left out or came late", PLAIN


def _gaps(report: Report, when: _Clock) -> Iterator[Line]:
    if not report.gaps:
        return
    whole_s = sum(gap.until_s - gap.since_s for gap in report.gaps)
    count = "one pause" if len(report.gaps) == 1 else f"{len(report.gaps)} pauses, the longest"
    yield f"  {words.duration(whole_s)} in {count}:", PLAIN
    longest = sorted(report.gaps, key=lambda gap: gap.since_s - gap.until_s)[:3]
    for gap in sorted(longest, key=lambda gap: gap.since_s):
        booted = "; the machine was started anew" if gap.booted else ""
        long = words.duration(gap.until_s - gap.since_s)
        yield f"  {when(gap.since_s)} to {when(gap.until_s)} ({long}{booted})", PLAIN


def _cost(report: Report) -> Iterator[Line]:
    cost = report.cost
    if cost is None or not cost.runs:
        return
    share = words.share(cost.wall_s / cost.awake_s) if cost.awake_s else "an unknown share"
    took = f"{words.count(cost.runs)} runs took {words.duration(cost.wall_s)} of wall time"
    yield f"  {took} ({share}); the history file has {words.size(cost.file_bytes)}", PLAIN


def _named(report: Report, key: StreamKey) -> str:
    """Name a stream, and its GPU where there is more than one place to tell apart."""
    name = _cut(words.stream(key, report.several), 40)
    places = {track.key.gpu for track in report.tracks}
    return name if len(places) == 1 else f"{_gpu(report, key.gpu)}: {name}"


def _gpu(report: Report, gpu: str | None) -> str:
    return _cut(words.place(gpu, report.gpus), 60)


def _cut(text: str, most: int = LONGEST) -> str:
    """Make a foreign word harmless, and short enough for a cell."""
    harmless = escaped(text)
    return harmless if len(harmless) <= most else f"{harmless[: most - 3]}..."


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Line]:
    """Align cells: words to the left, what begins with a digit to the right; none without rows."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    right = [
        all(not cell or cell[0].isdigit() for cell in column) for column in zip(*rows, strict=True)
    ]
    for row, style in ((header, QUIET), *((row, PLAIN) for row in rows)):
        cells = (
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, right, strict=True)
        )
        yield f"  {'  '.join(cells)}".rstrip(), style


def _latest(found: Sequence[T]) -> Sequence[T]:
    return found[-MOST:]


def _more(found: Sequence[object]) -> Iterator[Line]:
    if len(found) > MOST:
        yield f"  and {len(found) - MOST} earlier ones", PLAIN


def _folded(text: str) -> list[str]:
    return wrap(escaped(text), WIDTH) or [""]


def _within(text: str) -> list[str]:
    """Break a line that is too long, behind its own indent."""
    if len(text) <= WIDTH:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    whole = FIGURE.sub("\\1\N{NO-BREAK SPACE}", text)  # a figure stays with its unit
    lines = wrap(whole, WIDTH, subsequent_indent=indent) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
