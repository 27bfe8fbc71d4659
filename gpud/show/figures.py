"""Figures of every probe: now, usually, how much slower that is, and the recent past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.stats import human
from gpud.core.text import escaped
from gpud.show import sparkline, standingwords
from gpud.show.probewords import called, name_of
from gpud.show.units import moment
from gpud.show.view import BAD, HEAD, PLAIN, QUIET, Span, line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpud.show.document import Probe, Sample, Status, Stream
    from gpud.show.view import Line, View

INDENT: Final = 2
BETWEEN: Final = 2
NAME: Final = 20
WIDE: Final = 100
"""Below so many columns names have no more than ``NAME`` of them."""
LEAST_BARS: Final = 8
MOST_BARS: Final = 60
Key = tuple[int | None, str, str]
"""Number of the GPU, probe, mode."""


class Row(NamedTuple):
    """One mode of one probe, in words; what is not known is empty."""

    name: str
    words: str  # what that measures
    now: str
    usual: str
    change: str
    confirmed: str  # the alert's figure and when it was decided, where that is not the change
    style: str
    marks: str
    past: tuple[Sequence[float], Sequence[float]]  # times and medians


def places(document: Status, *, brief: bool = False) -> dict[int | None, list[Row]]:
    """Give the rows of each GPU by number, those of the CPU under None, by probe.

    ``brief``: one mode of each probe, the one that has become slower or else the first.
    """
    past = _past(document)
    found: dict[int | None, list[Row]] = {}
    for probe in sorted(document.probes, key=_place):
        modes = [(one, document.stream(probe, one.mode)) for one in probe.samples]
        if brief:
            modes.sort(key=lambda mode: not (mode[1] and mode[1].open))
        for sample, stream in modes[:1] if brief else modes:
            bars = past.get((probe.gpu, probe.probe, sample.mode), ((), ()))
            row = _row(probe, sample, stream, bars, document.written_s)
            found.setdefault(probe.gpu, []).append(row)
    return found


class Columns(NamedTuple):
    """Widths of the columns; 0: there is no room for it, or nothing in it."""

    name: int = 0
    words: int = 0
    now: int = 0
    usual: int = 0
    change: int = 0
    bars: int = 0


def columns(tables: Iterable[Sequence[Row]], view: View) -> Columns:
    """Share out the width, the same for all tables.

    If it is narrow the words go first, then the bars, then what was confirmed, then the usual,
    then the change, and names are cut last.
    """
    rows = [row for table in tables for row in table]
    cells = [(*row[:5], _change(row)) for row in rows] or [("",) * 6]
    name, words, now, usual, change, both = (max(map(len, c)) for c in zip(*cells, strict=True))
    if view.height is None:
        return Columns(name, words, now, usual, both, MOST_BARS)
    fixed = INDENT + BETWEEN + now
    if view.width < WIDE:
        name = min(name, NAME)
    name = max(min(name, view.width - fixed), 1)
    room = view.width - fixed - name
    change = both if room >= BETWEEN + both + BETWEEN + usual else change
    change = change if change and room >= BETWEEN + change else 0
    room -= BETWEEN + change if change else 0
    usual = usual if usual and change and room >= BETWEEN + usual else 0
    room -= BETWEEN + usual if usual else 0
    words = words if words and room >= BETWEEN + words + BETWEEN + LEAST_BARS else 0
    room -= BETWEEN + words if words else 0
    bars = min(room - BETWEEN, MOST_BARS)
    return Columns(name, words, now, usual, change, bars if bars >= LEAST_BARS else 0)


def drawn(rows: Sequence[Row], widths: Columns, view: View) -> list[Line]:
    """Draw rows in columns."""
    return [line(*_spans(row, widths, view)) for row in rows]


def _spans(row: Row, widths: Columns, view: View) -> Iterator[Span]:
    name = row.name
    if len(name) > widths.name:
        name = f"{name[: widths.name - 1]}…"
    yield Span(f"{'':{INDENT}}{name:<{widths.name}}")
    if widths.words:
        yield Span(f"{'':{BETWEEN}}{row.words:<{widths.words}}", QUIET)
    yield Span(f"{'':{BETWEEN}}{row.now:>{widths.now}}", HEAD)
    if widths.usual:
        yield Span(f"{'':{BETWEEN}}{row.usual:<{widths.usual}}", QUIET)
    if widths.change:
        whole = _change(row)
        shown = whole if len(whole) <= widths.change else row.change
        yield Span(f"{'':{BETWEEN}}{shown:<{widths.change}}", row.style)
    room = widths.bars
    if room and row.marks:
        yield Span(f"{'':{BETWEEN}}{row.marks[:room] if view.height else row.marks}", QUIET)
        room -= len(row.marks) + BETWEEN
    if room >= LEAST_BARS and view.height is not None:
        past = sparkline.drawn(*row.past, width=room, ascii_only=view.ascii_only)
        yield Span(f"{'':{BETWEEN}}{past}")


def _change(row: Row) -> str:
    return f"{row.change}, {row.confirmed}" if row.confirmed else row.change


def _row(
    probe: Probe,
    sample: Sample,
    stream: Stream | None,
    past: tuple[Sequence[float], Sequence[float]],
    now_s: float,
) -> Row:
    usual = None if stream is None else stream.usual
    stands = standingwords.standing(stream, sample.value)
    name, words = name_of(probe.probe, sample.mode), called(probe.probe, sample.mode)
    marks = [*_humps(sample), *probe.flags]
    return Row(
        name,
        "" if words == name else words,
        human(sample.value, sample.unit),
        "" if usual is None else f"usual {human(usual, sample.unit)}",
        f"now {stands.now}" if stands.now else stands.much,
        _confirmed(stands, now_s),
        BAD if stands.fires else PLAIN,
        escaped(f"({', '.join(marks)})") if marks else "",
        past,
    )


def _confirmed(stands: standingwords.Standing, now_s: float) -> str:
    """Say what was confirmed and when: "73 % at 22:29", "73 % on 2026-11-22"."""
    if not stands.now or stands.at_s is None:
        return ""
    day, _, clock = moment(stands.at_s).partition(" ")
    when = f"at {clock}" if moment(now_s).startswith(day) else f"on {day}"
    slower = " slower"
    much = stands.much.removesuffix(slower) if stands.now.endswith(slower) else stands.much
    return f"{much} {when}"


def _humps(sample: Sample) -> Iterator[str]:
    for peak in sorted(sample.peaks, key=lambda peak: -peak.share)[1:]:
        yield f"{peak.share:.0%} at {human(peak.value, sample.unit)}"


def _past(document: Status) -> dict[Key, tuple[Sequence[float], Sequence[float]]]:
    numbers: dict[str | None, int | None] = {None: None}
    numbers |= {uuid: gpu.number for uuid, gpu in document.gpus.items()}
    return {
        (numbers[one.uuid], one.probe, one.mode): (
            [one.from_s + after_s for after_s in one.after_s],
            one.medians,
        )
        for one in document.recent
        if one.uuid in numbers
    }


def _place(probe: Probe) -> tuple[bool, int, str]:
    """Order by GPU and the CPU last; on each, launching first: it is what this is about."""
    return probe.gpu is None, probe.gpu or 0, "" if probe.probe == "launch" else probe.probe
