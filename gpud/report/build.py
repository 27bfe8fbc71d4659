"""Rows of the history -> the report. Pure: the moment and the size of the file come in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.core import gpu_table
from gpud.core.alerts import DRIVER_REGRESSION, FUNCTION_LOST, SLOWDOWN, TEST
from gpud.core.commands import BASELINE_ACCEPTED, BASELINE_RESET
from gpud.core.probewords import figure_of
from gpud.core.stats import compared
from gpud.core.streams import JUDGED
from gpud.report import findings, health, tracks, words
from gpud.report.model import Cost, Event, Headline, Report, Track

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpud.core.streams import StreamKey
    from gpud.report.model import Lost, Shift, Told
    from gpud.report.rows import Rows

SLOWER: Final = frozenset({DRIVER_REGRESSION, SLOWDOWN, FUNCTION_LOST})
"""Alerts that answer the question on top: did something become slower, or stop working?"""
FEWEST: Final = 20
"""Clean runs of some stream without which nothing can be said."""
SPOKEN: Final = {
    BASELINE_ACCEPTED: "you said that what is now is normal:",
    BASELINE_RESET: "you said to learn anew:",
}
NOTHING: Final = "nothing became slower"
WORTH: Final = 1.065
"""A slowdown that the detectors would have told of, had they seen it."""


def build(rows: Rows, *, since_s: float, until_s: float, file_bytes: int) -> Report:
    """Make the report of a time."""
    stretches, of = tracks.stretches(rows.past)
    of_runs = of[len(rows.past) - len(rows.runs) :]
    units = {key: column.unit for key, column in rows.columns.items()}
    begins_s = tracks.beginning(rows.past, since_s, until_s)
    found = [
        Track(
            key,
            column.unit,
            tracks.levels(column, of),
            tracks.bins(column, rows.past, begins_s, until_s),
            findings.marks(rows.alarms, key, column.unit),
        )
        for key, column in sorted(rows.columns.items(), key=_by_name)
    ]
    gaps = health.gaps(rows.runs)
    awake_s = health.awake_s(rows.runs, gaps)
    told = tuple(one for one in findings.told(rows.alerts) if one.name != TEST)
    lost = health.lost(rows.runs, stretches, of_runs)
    judged = [track for track in found if track.unit in JUDGED]
    shifts = (
        *findings.untold(rows.alarms, rows.alerts, units, rows.said),
        *findings.unsaid(judged, stretches, rows.verdicts, rows.alarms),
    )
    gpus = {key.gpu for key in rows.columns} | {run.gpu for run in rows.runs}
    return Report(
        since_s,
        until_s,
        begins_s,
        headline(told, lost, judged, shifts),
        {uuid: rows.names.get(uuid, "") for uuid in sorted(gpus - {None}, key=str) if uuid},
        stretches,
        _events(rows),
        told,
        (
            *findings.verdicts(rows.verdicts, units),
            *findings.awaited(judged, stretches, (*rows.verdicts, *rows.alarms)),
        ),
        tuple(sorted(shifts, key=lambda one: one.at_s)),
        lost,
        tuple(found),
        health.failures(rows.runs),
        health.left(rows.runs, awake_s),
        health.marked(rows.runs, of_runs),
        gaps,
        Cost(len(rows.runs), sum(run.duration_s for run in rows.runs), awake_s, file_bytes),
        tuple(_notes(rows)),
        _several(rows.columns),
    )


def headline(
    told: Sequence[Told],
    lost: Sequence[Lost],
    tracks: Sequence[Track],
    shifts: Sequence[Shift] = (),
) -> Headline:
    """Say in one line what one wants to know first: what is slower now, or that nothing is.

    Of a shift that nobody was told of only where no detector has judged it: before an upgrade none
    was there to do so.
    """
    slower = [one for one in told if one.name in SLOWER]
    firing = sorted(
        (one for one in slower if one.ends_s is None),
        key=lambda one: (one.severity != "critical", -one.starts_s),
    )
    if firing:
        more = f" (and {len(firing) - 1} more)" if len(firing) > 1 else ""
        return Headline(firing[0].summary + more, worse=True)
    gone = [one for one in lost if one.back_s is None]
    if gone:
        first = gone[0]
        more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
        since = f"worked under driver {first.old} and fails under {first.new}"
        return Headline(f"{first.probe} {since}{more}", worse=True)
    untold = [one for one in shifts if one.why == findings.UNTOLD and not one.over]
    if untold:
        return Headline(_moved(untold), worse=True)
    return Headline(_well(slower, tracks, shifts), worse=False)


def _well(slower: Sequence[Told], tracks: Sequence[Track], shifts: Sequence[Shift]) -> str:
    """Say that nothing is slower now, or why nobody can know."""
    most = max((sum(level.n for level in track.levels) for track in tracks), default=0)
    if most < FEWEST:
        few = "no runs" if not most else f"only {most} run{'s' if most > 1 else ''} to compare"
        return f"too little to say anything: {few}"
    unjudged = [one for one in shifts if one.why == findings.UNDECIDED and one.slowdown > WORTH]
    if unjudged:
        return f"{_moved(unjudged)}; {findings.UNDECIDED}"
    if slower:
        over = f"{len(slower)} slowdown{'s' if len(slower) > 1 else ''} ended"
        return f"nothing is slower now; {over}"
    return NOTHING


def _moved(shifts: Sequence[Shift]) -> str:
    """Name the largest shift, and how many there are beside it."""
    most = max(shifts, key=lambda one: one.slowdown)
    more = f" (and {len(shifts) - 1} more)" if len(shifts) > 1 else ""
    return f"{figure_of(most.key)}: {compared(most.slowdown)} {most.words}{more}"


def _several(keys: Iterable[StreamKey]) -> tuple[str, ...]:
    versions: defaultdict[str, set[int]] = defaultdict(set)
    for key in keys:
        versions[key.probe].add(key.version)
    return tuple(sorted(probe for probe, known in versions.items() if len(known) > 1))


def _by_name(item: tuple[StreamKey, object]) -> tuple[bool, str, str, str, int, bool]:
    """Order streams: the CPU's last, the others by GPU and probe."""
    key = item[0]
    return (key.gpu is None, key.gpu or "", key.probe, key.mode, key.version, key.on_battery)


def _events(rows: Rows) -> tuple[Event, ...]:
    """Give what changed under the figures, in the words of the status screen."""
    said = [
        {"kind": entry.kind, "at_s": entry.at_s, "old": entry.body["old"], "new": entry.body["new"]}
        for entry in rows.events
        if entry.body.get("old") is not None and entry.body.get("new") is not None
    ]
    told = gpu_table.changes({"changes": said})
    changed = [Event(at_s, ", ".join(words)) for at_s, words in told]
    spoken = [
        Event(one.at_s, f"{SPOKEN[one.kind]} {one.choice}")
        for one in rows.said
        if one.kind in SPOKEN
    ]
    return tuple(sorted([*changed, *spoken], key=lambda one: one.at_s))


def _notes(rows: Rows) -> list[str]:
    found = []
    hours = len(rows.past) - len(rows.runs)
    if hours:
        found.append(
            f"{words.count(hours)} hours are known by their summaries only: single runs of that "
            "time are gone"
        )
    found += [
        f"{words.count(number)} rows of {table} could not be read and are left out"
        for table, number in sorted(rows.damaged.items())
    ]
    return found


def without_bins(report: Report) -> Report:
    """Give a report without its charts' pieces, for what draws none."""
    return replace(report, tracks=tuple(replace(track, bins=()) for track in report.tracks))
