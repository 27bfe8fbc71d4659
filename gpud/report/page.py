"""The report as one HTML file that needs nothing else: no script, no request, light and dark. Pure.

Every text goes through ``charts.safe`` on its way into the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.probewords import figure_of
from gpud.core.stats import compared
from gpud.report import charts, words
from gpud.report.charts import safe
from gpud.report.text import LEFT_OUT, cells
from gpud.report.tracks import bin_width_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo

    from gpud.report.model import Report, Track

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE: Final = """
:root { color-scheme: light dark; --text: #1c1e21; --quiet: #5c636b; --back: #fff; --soft: #f3f4f6;
  --rule: #d9dce0; --line: #1f6feb; --band: #1f6feb2e; --bad: #b3261e; --good: #1a7f37;
  --apart: #9a6700; --odd: #cfe2ff; --even: #e3dcf7 }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --quiet: #9da5ae; --back: #14171a;
  --soft: #1d2126; --rule: #343a41; --line: #6cb0ff; --band: #6cb0ff33; --bad: #ff8a80;
  --good: #6fdd8b; --apart: #e3b341; --odd: #1d3c66; --even: #3d3060 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1rem; font-weight: 400; color: var(--quiet); margin: 0 0 .25rem }
.verdict { font-size: 1.5rem; line-height: 1.3; font-weight: 600; margin: 0 0 1.5rem;
  padding-left: .8rem; border-left: .3rem solid var(--good) }
.verdict.worse { border-color: var(--bad) }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
h4 { font-size: 1rem; margin: 1.2rem 0 .2rem; font-weight: 600 }
p, ul { margin: .3rem 0 }
ul { padding-left: 1.2rem }
li { margin: .3rem 0 }
.quiet, figcaption, .when { color: var(--quiet); font-size: .875rem }
.bad { color: var(--bad) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .9rem;
  font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top }
thead th { color: var(--quiet); font-weight: 400; white-space: nowrap }
tbody th { font-weight: 400 }
.n { white-space: nowrap; overflow-wrap: normal }
figure { margin: .5rem 0 1.6rem }
svg { display: block; width: 100%; height: auto; background: var(--soft); border-radius: .4rem }
svg text { font: 12px system-ui, sans-serif; fill: var(--quiet) }
svg .end { text-anchor: end }
svg .mid { text-anchor: middle }
svg .name { fill: var(--text) }
svg .grid { stroke: var(--rule); fill: none }
svg .driver { stroke: var(--text); stroke-dasharray: 4 3; fill: none }
svg .band { fill: var(--band) }
svg .median { stroke: var(--line); stroke-width: 2; fill: none; stroke-linejoin: round;
  stroke-linecap: round }
svg .apart { stroke: var(--apart); stroke-width: 4; stroke-linecap: round; fill: none }
svg .worse { fill: var(--bad) }
svg .better { fill: var(--good) }
svg .odd { fill: var(--odd) }
svg .even { fill: var(--even) }
svg .gap { fill: var(--soft); opacity: .85 }
svg rect + text { fill: var(--text) }
summary { cursor: pointer; padding: .4rem 0 }
@media (max-width: 34rem) { body { padding: 1rem .75rem 2rem; font-size: 15px }
  .verdict { font-size: 1.2rem } table { font-size: .82rem } th, td { padding-right: .6rem }
  .n { white-space: normal }
  svg text { font-size: 19px } }
@media print { details > * { display: block } }
"""
LEGEND: Final = (
    "The line is the median of single runs, the band goes from their p10 to their p90, dashed "
    "lines are new drivers, triangles are changes that a detector confirmed, dots are runs that "
    "are kept apart (those beyond the chart lie on its edge). A change in a table compares the "
    "medians of all runs under two drivers; that of an alert is of the runs that decided it."
)
MOVED: Final = 0.03
"""A stream whose level moved by more under some driver is shown open."""


def drawn(report: Report, zone: tzinfo | None = None) -> str:
    """Draw the page. ``zone`` None is the local time."""
    since, until = (words.day(at_s, zone) for at_s in (report.since_s, report.until_s))
    worse = " worse" if report.headline.worse else ""
    parts = [
        f"<h1>gpud report, {since} to {until}</h1>",
        f'<p class="verdict{worse}">{safe(report.headline.words)}</p>',
        _section("Drivers", _drivers(report, zone)),
        _section("What changed", _list(_events(report, zone))),
        _section("What you were told", _list(_told(report, zone))),
        _section("Stopped working", _list(_lost(report, zone))),
        _section("Verdicts on drivers", _verdicts(report)),
        _section("Moved, and nobody was told", _list(_shifts(report, zone))),
        _section("Figures", _figures(report, zone)),
        _section("Runs that are kept apart", _marked(report)),
        _section("Failed runs", _failures(report, zone)),
        _section("Nothing ran", _list(_gaps(report, zone))),
        _section("What gpud took", _cost(report)),
        _section("Not taken into account", _list(safe(note) for note in report.notes)),
    ]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="referrer" content="no-referrer"/>
<title>gpud report, {since} to {until}</title>
<style>{STYLE}</style></head>
<body>
{"".join(parts)}
</body></html>
"""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>\n" if body else ""


def _list(items: Iterable[str]) -> str:
    shown = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{shown}</ul>" if shown else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Draw a table whose first column names its row; cells are escaped here."""
    body = "".join(
        f'<tr><th scope="row"{_narrow(first)}>{safe(first)}</th>'
        + "".join(f"<td{_narrow(cell)}>{safe(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in header)
    if not body:
        return ""
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _narrow(cell: str) -> str:
    """Keep a figure on one line with its unit; a foreign text may break wherever it must."""
    return ' class="n"' if len(cell) <= len("10.8-11.2 Tflop/s ...") else ""


def _when(at_s: float, zone: tzinfo | None) -> str:
    return f'<span class="when">{words.moment(at_s, zone)}</span>'


def _drivers(report: Report, zone: tzinfo | None) -> str:
    rows = [
        (
            stretch.driver or words.UNKNOWN_DRIVER,
            words.moment(stretch.since_s, zone),
            "now" if words.lasts(stretch, report) else words.moment(stretch.until_s, zone),
            words.count(stretch.runs),
        )
        for stretch in report.stretches
    ]
    if not rows:
        return ""
    return f"<figure>{charts.timeline(report, zone)}</figure>" + _table(
        ("driver", "from", "to", "runs"), rows
    )


def _events(report: Report, zone: tzinfo | None) -> Iterator[str]:
    for event in report.events:
        yield f"{_when(event.at_s, zone)} {safe(event.words)}"


def _told(report: Report, zone: tzinfo | None) -> Iterator[str]:
    for told in report.told:
        ended = "still so" if told.ends_s is None else f"until {words.moment(told.ends_s, zone)}"
        seen = ", acknowledged" if told.acknowledged else ""
        fix = f"<br/>Fix: {safe(told.fix)}" if told.fix and told.ends_s is None else ""
        name = f"{safe(told.name)}, {safe(told.severity)}, {ended}{seen}"
        shade = ' class="bad"' if told.ends_s is None else ""
        said = f"<strong{shade}>{safe(told.summary)}</strong>"
        yield f'{_when(told.starts_s, zone)} {said}<br/><span class="quiet">{name}</span>{fix}'


def _lost(report: Report, zone: tzinfo | None) -> Iterator[str]:
    for one in report.lost:
        where = f"{one.probe} on {words.place(one.gpu, report.gpus)}"
        back = "" if one.back_s is None else f"; worked again {words.moment(one.back_s, zone)}"
        text = (
            f"{where}: worked under driver {one.old}, failed {words.count(one.failed)} times under "
            f"{one.new} ({one.reason}){back}"
        )
        yield f"{_when(one.since_s, zone)} {safe(text)}"


def _verdicts(report: Report) -> str:
    rows = [
        (
            f"{words.stream(one.key, report.several)} on {words.place(one.key.gpu, report.gpus)}",
            f"{one.old} \N{RIGHTWARDS ARROW}\N{NO-BREAK SPACE}{one.new}",
            one.words,
        )
        for one in sorted(report.verdicts, key=lambda one: not one.worse)
    ]
    return _table(("stream", "driver", "verdict"), rows)


def _shifts(report: Report, zone: tzinfo | None) -> Iterator[str]:
    for one in report.shifts:
        where = (
            f"{words.stream(one.key, report.several)} on {words.place(one.key.gpu, report.gpus)}"
        )
        text = f"{where}: {compared(one.slowdown)} {one.words} ({one.why})"
        yield f"{_when(one.at_s, zone)} {safe(text)}"


def _figures(report: Report, zone: tzinfo | None) -> str:
    """Give each GPU's streams; those that stayed as they were behind a line to open."""
    if not report.tracks:
        return ""
    parts = [f'<p class="quiet">{LEGEND}</p>']
    for gpu in dict.fromkeys(track.key.gpu for track in report.tracks):
        own = [track for track in report.tracks if track.key.gpu == gpu]
        moved = [track for track in own if _moved(track)]
        rest = [track for track in own if not _moved(track)]
        parts.append(f"<h3>{safe(words.place(gpu, report.gpus))}</h3>")
        parts += [_track(report, track, zone) for track in moved]
        if rest:
            many = f"{len(rest)} stream{'s' if len(rest) > 1 else ''} that stayed as they were"
            inner = "".join(_track(report, track, zone) for track in rest)
            opened = "" if moved else ' open="open"'
            parts.append(f"<details{opened}><summary>{many}</summary>{inner}</details>")
    return "".join(parts)


def _moved(track: Track) -> bool:
    ratios = [level.slowdown for level in track.levels if level.slowdown is not None]
    return track.telling or any(abs(ratio - 1) > MOVED for ratio in ratios)


def _track(report: Report, track: Track, zone: tzinfo | None) -> str:
    width_s = bin_width_s(report.begins_s, report.until_s)
    drawn = charts.course(report, track, width_s, zone)
    rows = [cells(report, track, level) for level in track.levels]
    table = _table(("driver", "runs", "median", "p10 to p90", "change"), rows)
    name, what = words.stream(track.key, report.several), figure_of(track.key)
    aside = f' <span class="quiet">{safe(name)}</span>' if what != name else ""
    return f"<h4>{safe(what)}{aside}</h4><figure>{drawn}{table}</figure>"


def _marked(report: Report) -> str:
    rows = [
        (
            words.place(one.gpu, report.gpus),
            report.stretches[one.stretch].driver or words.UNKNOWN_DRIVER,
            words.count(one.runs),
            *(words.share(ratio) for ratio in (one.busy, one.low, one.cold, one.resume)),
        )
        for one in report.marked
    ]
    return _table(("GPU", "driver", "runs", "busy", "low", "cold", "resume"), rows)


def _failures(report: Report, zone: tzinfo | None) -> str:
    rows = [
        (
            f"{one.probe} on {words.place(one.gpu, report.gpus)}",
            one.reason,
            words.count(one.count),
            words.moment(one.last_s, zone),
            one.detail[:500],
        )
        for one in report.failures
    ]
    left = [
        f"{one.probe} on {words.place(one.gpu, report.gpus)}: about "
        f"{words.share(1 - one.runs / one.due)} of {words.count(one.due)} due runs were left out "
        "or came late"
        for one in report.left
        if one.due and 1 - one.runs / one.due > LEFT_OUT
    ]
    table = _table(("probe", "reason", "times", "last", "in the driver's words"), rows)
    return table + _list(map(safe, left))


def _gaps(report: Report, zone: tzinfo | None) -> Iterator[str]:
    for gap in sorted(report.gaps, key=lambda gap: gap.since_s - gap.until_s)[:10]:
        booted = "; the machine was started anew" if gap.booted else ""
        ends = f"{words.moment(gap.since_s, zone)} to {words.moment(gap.until_s, zone)}"
        yield safe(f"{ends} ({words.duration(gap.until_s - gap.since_s)}{booted})")


def _cost(report: Report) -> str:
    cost = report.cost
    if cost is None or not cost.runs:
        return ""
    share = words.share(cost.wall_s / cost.awake_s) if cost.awake_s else "an unknown share"
    took = (
        f"{words.count(cost.runs)} runs took {words.duration(cost.wall_s)} of wall time ({share})"
    )
    return f"<p>{safe(took)}; the history file has {words.size(cost.file_bytes)}.</p>"
