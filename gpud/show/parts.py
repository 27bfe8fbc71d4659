"""The parts of what ``gpud status`` shows that are words: alerts, health, what was left out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpud.show import gpu_table, headline, skipwords, stream_lines
from gpud.show.headline import unseen
from gpud.show.view import BAD, GOOD, HEAD, QUIET, UNSURE, Span, line, listed, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.show.view import Line, View

LEVELS = ("ok", "degraded", "FAILED")
STYLES = (GOOD, UNSURE, BAD)
MOST_ALERTS = 3
LATEST = 3
"""Changes that are shown; all of them are in /api/v1/events."""
STALE_FROM_S = 10.0
"""From when on it is said how old the document is: a living agent writes it every second."""
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def title(document: dict[str, Any], now_s: float) -> Line:
    """The state in a word, since when, and how old the word is where nobody writes it any more.

    It has been so for as long as the page says, and work that has become slower is not well.
    """
    said = headline.headline(document)
    level = max((health["level"] for health in document["health"].values()), default=0)
    n = len(unseen(document))
    told = f", {n} alert{'' if n == 1 else 's'}" if n else ""
    word = "slower" if said.word == headline.SLOWER else document["state"]
    at_s = said.since_s
    begun = "" if at_s is None else f" since {moment(at_s)} ({lasted(now_s - at_s)})"
    age_s = now_s - document["written_s"]
    old = f", data {lasted(age_s)} old" if age_s >= STALE_FROM_S else ""
    state = Span(f"{word}{told}", STYLES[max(level, 1) if told else level])
    return line(Span(f"gpud {document['version']}: ", HEAD), state, begun, Span(old, BAD))


def first(document: dict[str, Any]) -> str | None:
    """Give what to do before all else, as the page says it; where that has no fix, another's."""
    said = headline.headline(document)
    if said.state == headline.OK:
        return None
    worst = sorted(document["health"].items(), key=lambda item: (-item[1]["level"], item[0]))
    fixes = [health.get("fix") for _, health in worst if health["level"] > 0]
    waiting = [one["fix"] for one in unseen(document)]
    return next((fix for fix in (said.fix, *waiting, *fixes) if fix), None)


def do_first(document: dict[str, Any]) -> list[Line]:
    """Write it, as the line below the title."""
    fix = first(document)
    return [line(Span("  do first: ", HEAD), fix)] if fix else []


def unmeasured(document: dict[str, Any]) -> list[Line]:
    """Write what is not measured, or not compared, while every part is well."""
    words = skipwords.unmeasured(document)
    return [line(Span("  note: ", HEAD), words)] if words else []


def alerts(document: dict[str, Any]) -> list[Line]:
    """What fires and nobody has acknowledged, with what to do; the rest only counted."""
    firing, waiting = _firing(document), unseen(document)
    said = first(document)
    shown: list[Line] = []
    for one in waiting[:MOST_ALERTS]:
        word = Span(f"  {one['severity'].upper()}: ", BAD)
        shown.append(line(word, one["summary"]))
        if one["fix"] and one["fix"] != said:
            shown.append(line(f"  {'':<10} fix: {one['fix']}"))
        seen = f"seen it: gpud alerts ack {one['fingerprint'][:8]}"
        shown.append(line(f"  {'':<10} since {moment(headline.began_s(one))}; {seen}"))
    more = len(waiting) - MOST_ALERTS
    known = len(firing) - len(waiting)
    rest = [f"{more} more"] * (more > 0) + [f"{known} acknowledged"] * bool(known)
    if rest:
        shown.append(line(f"  alerts: {', '.join(rest)}; all of them: gpud alerts"))
    return shown


def health(
    document: dict[str, Any], now_s: float, view: View, *, brief: bool = False
) -> list[Line]:
    """Parts that have the same to say together, a fix only once; those that are well last."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, one in sorted(document["health"].items()):
        unset = _plain(one["reason"]) if not one["level"] and one.get("reason") else None
        said = one["level"], unset or LEVELS[one["level"]], one.get("detail"), one.get("fix")
        alike.setdefault(said, []).append(name)
    well = alike.pop((0, LEVELS[0], None, None), [])
    shown: list[Line] = []
    told: dict[str, str] = {}
    for (level, word, detail, fix), names in alike.items():
        if brief and not level and detail:  # nothing is wrong; gpud doctor has the advice
            said = detail.partition(": ")[0]
            shown.append(line(f"  {', '.join(names):<10} ", Span(word, GOOD), f": {said}"))
            continue
        shown.append(line(f"  {', '.join(names):<10} ", Span(word, STYLES[level])))
        if detail:
            shown.append(line(f"  {'':<10} because: {detail}"))
        if fix:
            shown.append(line(f"  {'':<10} fix: {f'as for {told[fix]}' if fix in told else fix}"))
            told.setdefault(fix, names[0])
    from_s = document.get("gpu_from_s")
    if from_s is not None and from_s > now_s:
        at = time.strftime("%X", time.localtime(from_s))
        shown.append(line(f"  {skipwords.GPU_WORK_BEGINS.format(moment=at)}"))
    retry_s = (document.get("breaker") or {}).get("retry_s")
    if retry_s is not None:
        at = time.strftime("%X", time.localtime(retry_s))
        shown.append(line(f"  GPU work is tried again at {at}"))
    if brief and well:
        count = f"all {len(well)} parts" if not shown else f"{len(well)} other parts"
        return [*shown, line(Span("  ok      ", GOOD), count)]
    return [*shown, *listed(f"{'ok':<10}", well, view)]


def missing(document: dict[str, Any], view: View) -> list[Line]:
    """Which values of the GPUs there are not, and why."""
    why = gpu_table.missing(document)
    return listed("", why.split(", ") if why else [], view)


def changed(document: dict[str, Any], view: View, most: int = LATEST) -> list[Line]:
    """The latest changes under the GPUs, ``most`` of them."""
    shown: list[Line] = []
    for at_s, words in gpu_table.changes(document)[-most:]:
        shown += listed(f"changed {moment(at_s)}:", words, view)
    return shown


def streams(document: dict[str, Any], now_s: float) -> list[Line]:
    """What is slower or faster than it was."""
    return [line(f"  {one}") for one in stream_lines.lines(document, now_s, moment)]


def missing_modes(probes: Iterable[dict[str, Any]]) -> list[Line]:
    """What this machine does not offer."""
    return [
        line(f"  {_place(state):<6} {state['probe']:<10} {gap['mode']}: {_plain(gap['reason'])}")
        for state in probes
        for gap in state["missing"]
    ]


def left_out(document: dict[str, Any]) -> list[Line]:
    """What is put off; not what waits for a GPU where there is none to wait for."""
    cuda = document["health"].get("cuda", {})
    vain = "no_gpu" if not cuda.get("level") and cuda.get("reason") else None
    return [
        line(
            f"  {'' if one['gpu'] is None else _place(one):<6} {one['probe']:<10} "
            f"{skipwords.because(one['reason'], one.get('utilization_gpu_ratio'))}, "
            f"{one['count']} in a row"
        )
        for one in sorted(document["put_off"], key=lambda one: (one["probe"], _place(one)))
        if one["reason"] != vain
    ]


def titled(head: str, rows: list[Line]) -> list[Line]:
    """Put a heading above rows, where there are any."""
    return [line(Span(f"  {head}", QUIET)), *rows] if rows else []


def lasted(seconds: float) -> str:
    """Write a duration in its two largest parts: "3 h 12 min"."""
    whole = max(0.0, seconds)
    for unit_s, unit, part_s, part in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
    ):
        if whole >= unit_s:
            count, rest = divmod(whole, unit_s)
            return f"{count:.0f} {unit} {rest // part_s:.0f} {part}"
    return f"{whole // MINUTE_S:.0f} min" if whole >= MINUTE_S else f"{whole:.0f} s"


def _firing(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document.get("alerts") or () if one["firing"]]


def _plain(slug: str) -> str:
    return slug.replace("_", " ")


def _place(state: Mapping[str, Any]) -> str:
    return "CPU" if state["gpu"] is None else f"GPU {state['gpu']}"
