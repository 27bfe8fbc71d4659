"""The figures of every probe: now, usually, how much slower that is, and the recent past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpud.core.stats import human, main_value
from gpud.core.text import escaped
from gpud.show import sparkline, standingwords
from gpud.show.probewords import called, name_of
from gpud.show.view import BAD, HEAD, PLAIN, QUIET, Span, line, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


@dataclass(frozen=True, slots=True)
class Row:
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


def places(document: Mapping[str, Any]) -> dict[int | None, list[Row]]:
    """Give the rows of each GPU by number, those of the CPU under None, by probe."""
    return _rows(document, brief=False)


def headlines(document: Mapping[str, Any]) -> dict[int | None, list[Row]]:
    """Likewise, one mode of each probe: the one that is told to be slower, else its first."""
    return _rows(document, brief=True)


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the columns; 0: there is no room for it, or nothing in it."""

    name: int = 0
    words: int = 0
    now: int = 0
    usual: int = 0
    change: int = 0
    bars: int = 0


def columns(tables: Iterable[Sequence[Row]], view: View) -> Columns:
    """Share out the width, the same for all tables.

    Where it is narrow the words go first, then the bars, then what was confirmed, then the usual,
    then the change, and names are cut last.
    """
    rows = [row for table in tables for row in table]
    name, words, now, usual, change, both = (
        max((len(cell) for cell in column), default=0)
        for column in (
            [row.name for row in rows],
            [row.words for row in rows],
            [row.now for row in rows],
            [row.usual for row in rows],
            [row.change for row in rows],
            [_change(row) for row in rows],
        )
    )
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


def _rows(document: Mapping[str, Any], *, brief: bool) -> dict[int | None, list[Row]]:
    streams = _streams(document)
    past = _past(document)
    found: dict[int | None, list[Row]] = {}
    for state in sorted(document["probes"], key=_place):
        samples = list(state["samples"])
        if brief:
            samples = sorted(samples, key=lambda one, s=state: not _open(streams, s, one))[:1]  # type: ignore[misc]
        for sample in samples:
            key = (state["gpu"], state["probe"], sample["mode"])
            row = _row(
                state, sample, streams.get(key), past.get(key, ((), ())), document["written_s"]
            )
            found.setdefault(state["gpu"], []).append(row)
    return found


def _row(
    state: Mapping[str, Any],
    sample: Mapping[str, Any],
    stream: Mapping[str, Any] | None,
    past: tuple[Sequence[float], Sequence[float]],
    now_s: float,
) -> Row:
    usual = None if stream is None else stream.get("usual")
    stands = standingwords.standing(stream, main_value(sample))
    name, words = name_of(state["probe"], sample["mode"]), called(state["probe"], sample["mode"])
    marks = [*_humps(sample), *state["flags"]]
    return Row(
        name,
        "" if words == name else words,
        human(main_value(sample), sample["unit"]),
        "" if usual is None else f"usual {human(usual, sample['unit'])}",
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


def _humps(sample: Mapping[str, Any]) -> Iterator[str]:
    peaks = sorted(sample.get("peaks") or (), key=lambda peak: -peak["share"])
    for peak in peaks[1:]:
        yield f"{peak['share']:.0%} at {human(peak['value'], sample['unit'])}"


def _streams(document: Mapping[str, Any]) -> dict[Key, Mapping[str, Any]]:
    """Give the stream that the last run of each mode was of: of its power source, the newest."""
    on_battery = {
        (state["gpu"], state["probe"]): (state.get("conditions") or {}).get("after.ac") is False
        for state in document["probes"]
    }
    found: dict[Key, Mapping[str, Any]] = {}
    streams: Iterable[Mapping[str, Any]] = document.get("streams") or ()
    for one in sorted(streams, key=lambda one: (one["version"], one["last_judged_s"] or 0.0)):
        if one["uuid"] is not None and one["gpu"] is None:
            continue  # of a GPU that is gone
        if one["on_battery"] is on_battery.get((one["gpu"], one["probe"]), False):
            found[one["gpu"], one["probe"], one["mode"]] = one
    return found


def _past(document: Mapping[str, Any]) -> dict[Key, tuple[list[float], list[float]]]:
    numbers = {uuid: gpu["number"] for uuid, gpu in (document.get("gpus") or {}).items()}
    found: dict[Key, tuple[list[float], list[float]]] = {}
    for one in document.get("recent") or ():  # an agent of an older release tells none
        if one["uuid"] is None or one["uuid"] in numbers:
            times = [one["from_s"] + after_s for after_s in one["after_s"]]
            key = numbers.get(one["uuid"]), one["probe"], one["mode"]
            found[key] = times, one["medians"]
    return found


def _open(
    streams: Mapping[Key, Mapping[str, Any]], state: Mapping[str, Any], sample: Mapping[str, Any]
) -> bool:
    one = streams.get((state["gpu"], state["probe"], sample["mode"]))
    return one is not None and bool(one.get("open"))


def _place(state: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Order by GPU and the CPU last; on each, launching first: it is what this is about."""
    gpu = state["gpu"]
    return gpu is None, gpu or 0, "" if state["probe"] == "launch" else state["probe"]
