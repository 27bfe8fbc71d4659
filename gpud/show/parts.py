"""Parts of ``gpud status`` that are words: title, alerts, health, what changed or was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.show import gpu_table, headline, skipwords, stream_lines
from gpud.show.headline import unseen
from gpud.show.units import clock, lasted, moment, place, plural, spaced
from gpud.show.view import BAD, GOOD, HEAD, QUIET, UNSURE, Span, line, listed

if TYPE_CHECKING:
    from gpud.show.document import Status
    from gpud.show.view import Line, View

LEVELS = ("ok", "degraded", "FAILED")
STYLES = (GOOD, UNSURE, BAD)
MOST_ALERTS = 3
LATEST = 3
"""Changes that are shown; all of them are in /api/v1/events."""
STALE_FROM_S = 10.0
"""From when on it is said how old the document is: a living agent writes it every second."""


def title(document: Status, now_s: float) -> list[Line]:
    """The state in a word, since when, how old the document is if it is stale, and what to do.

    It has been so for as long as the page says, and work that has become slower is not well.
    """
    said = headline.headline(document)
    level = max((health.level for health in document.health.values()), default=0)
    n = len(unseen(document))
    word = "slower" if said.word == headline.SLOWER else document.state
    at_s = said.since_s
    begun = "" if at_s is None else f" since {moment(at_s)} ({lasted(now_s - at_s)})"
    age_s = now_s - document.written_s
    old = f", data {lasted(age_s)} old" if age_s >= STALE_FROM_S else ""
    state = Span(f"{word}, {plural(n, 'alert')}" if n else word, STYLES[max(level, n > 0)])
    shown = [line(Span(f"gpud {document.version}: ", HEAD), state, begun, Span(old, BAD))]
    fix = first(document)
    return [*shown, line(Span("  do first: ", HEAD), fix)] if fix else shown


def first(document: Status) -> str | None:
    """Give what to do before all else, as the page says it; where that has no fix, another's."""
    said = headline.headline(document)
    if said.state == headline.OK:
        return None
    worst = sorted(document.health.items(), key=lambda item: (-item[1].level, item[0]))
    fixes = [health.fix for _, health in worst if health.level > 0]
    return next(filter(None, (said.fix, *(one.fix for one in unseen(document)), *fixes)), None)


def alerts(document: Status) -> list[Line]:
    """What fires and nobody has acknowledged, with what to do; the rest only counted."""
    waiting = unseen(document)
    said = first(document)
    shown: list[Line] = []
    for one in waiting[:MOST_ALERTS]:
        shown.append(line(Span(f"  {one.severity.upper()}: ", BAD), one.summary))
        if one.fix and one.fix != said:
            shown.append(line(f"  {'':<10} fix: {one.fix}"))
        seen = f"seen it: gpud alerts ack {one.fingerprint[:8]}"
        shown.append(line(f"  {'':<10} since {moment(one.began_s)}; {seen}"))
    more = len(waiting) - MOST_ALERTS
    known = sum(one.firing for one in document.alerts) - len(waiting)
    rest = [f"{more} more"] * (more > 0) + [f"{known} acknowledged"] * bool(known)
    if rest:
        shown.append(line(f"  alerts: {', '.join(rest)}; all of them: gpud alerts"))
    return shown


def health(document: Status, now_s: float, view: View, *, brief: bool = False) -> list[Line]:
    """Parts that have the same to say together, a fix only once; those that are well last.

    Before them stands what is not measured, or not compared, while every part is well.
    """
    note = skipwords.unmeasured(document)
    shown: list[Line] = [line(Span("  note: ", HEAD), note)] if note else []
    alike: dict[tuple[int, str, str | None, str | None], list[str]] = {}
    for name, one in sorted(document.health.items()):
        word = spaced(one.reason) if not one.level and one.reason else LEVELS[one.level]
        alike.setdefault((one.level, word, one.detail, one.fix), []).append(name)
    well = alike.pop((0, LEVELS[0], None, None), [])
    parts: list[Line] = []
    told: dict[str, str] = {}
    for (level, word, detail, fix), names in alike.items():
        short = f": {detail.partition(': ')[0]}" if brief and not level and detail else ""
        parts.append(line(f"  {', '.join(names):<10} ", Span(word, STYLES[level]), short))
        if short:
            continue  # nothing is wrong; gpud doctor has the advice
        if detail:
            parts.append(line(f"  {'':<10} because: {detail}"))
        if fix:
            parts.append(line(f"  {'':<10} fix: {f'as for {told[fix]}' if fix in told else fix}"))
            told.setdefault(fix, names[0])
    parts += _later(document, now_s)
    if brief and well:
        count = f"{len(well)} other parts" if parts else f"all {len(well)} parts"
        return [*shown, *parts, line(Span("  ok      ", GOOD), count)]
    return [*shown, *parts, *listed(f"{'ok':<10}", well, view)]


def _later(document: Status, now_s: float) -> list[Line]:
    """When GPU work begins, or is tried again."""
    shown = []
    if document.gpu_from_s is not None and document.gpu_from_s > now_s:
        words = skipwords.GPU_WORK_BEGINS.format(moment=clock(document.gpu_from_s))
        shown.append(line(f"  {words}"))
    if document.breaker and document.breaker.retry_s is not None:
        shown.append(line(f"  GPU work is tried again at {clock(document.breaker.retry_s)}"))
    return shown


def missing(document: Status, view: View) -> list[Line]:
    """Which values of the GPUs there are not, and why."""
    why = gpu_table.missing(document)
    return listed("", why.split(", ") if why else [], view)


def changed(document: Status, view: View, most: int = LATEST) -> list[Line]:
    """The latest changes under the GPUs, ``most`` of them."""
    shown: list[Line] = []
    for at_s, words in gpu_table.changes(document)[-most:]:
        shown += listed(f"changed {moment(at_s)}:", words, view)
    return shown


def streams(document: Status, now_s: float) -> list[Line]:
    """What is slower or faster than it was."""
    return [line(f"  {one}") for one in stream_lines.lines(document, now_s)]


def missing_modes(document: Status) -> list[Line]:
    """What this machine does not offer."""
    return [
        line(f"  {place(state.gpu):<6} {state.probe:<10} {gap.mode}: {spaced(gap.reason)}")
        for state in document.probes
        for gap in state.missing
    ]


def left_out(document: Status) -> list[Line]:
    """What is put off; not what waits for a GPU where there is none to wait for."""
    cuda = document.health.get("cuda")
    vain = "no_gpu" if cuda and not cuda.level and cuda.reason else None
    return [
        line(
            f"  {'' if one.gpu is None else place(one.gpu):<6} {one.probe:<10} "
            f"{skipwords.because(one.reason, one.utilization_gpu_ratio)}, {one.count} in a row"
        )
        for one in sorted(document.put_off, key=lambda one: (one.probe, place(one.gpu)))
        if one.reason != vain
    ]


def titled(head: str, rows: list[Line]) -> list[Line]:
    """Put a heading above rows, where there are any."""
    return [line(Span(f"  {head}", QUIET)), *rows] if rows else []
