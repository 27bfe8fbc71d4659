"""What ``gpud baseline show`` and ``gpud alerts`` show: the agent's document as plain lines.

Imports nothing that takes time. Whatever comes from outside is made harmless here.
"""

from __future__ import annotations

import time
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.regression.commands import CPU
from gpud.core.alerts import SHORT
from gpud.core.errors import GpudError
from gpud.core.sample import Unit
from gpud.core.stats import compared, human
from gpud.core.text import escaped, rezoned
from gpud.show.headline import began_s
from gpud.show.probewords import name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpud.agent.regression.commands import Choice

WIDTH: Final = 100
COLUMNS: Final = ("probe", "normal", "now", "change", "runs", "driver")
LEAST_ROOM: Final = 20
LONGEST: Final = 36
"""Characters of a stream's name; ours have fewer, and a row has to stay within the width."""
UNKNOWN: Final = "-"


def chosen(
    document: Mapping[str, Any], gpu: str | None, probe: str | None, mode: str | None
) -> list[dict[str, Any]]:
    """Give the streams of a document that are meant; ``gpu`` is a UUID's beginning, or "cpu".

    Errors: ``GpudError`` where none is, with what there is.
    """
    streams: list[dict[str, Any]] = list(document.get("streams") or ())
    found = [
        one
        for one in streams
        if (one["uuid"] or CPU).lower().startswith((gpu or "").lower())
        and probe in {None, one["probe"]}
        and mode in {None, one["mode"]}
    ]
    if streams and not found:
        known = dict.fromkeys(f"{one['probe']} {one['mode']}" for one in streams)
        raise GpudError("nothing that is judged has this name", fix=f"one of: {', '.join(known)}")
    return found


def baseline_lines(streams: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> list[str]:
    """Say what is normal for each stream, what it is now, and what is known of its driver."""
    if not streams:
        return ["nothing is judged yet: figures of the first runs have to come in"]
    several = _several(document.get("streams") or ())
    places = [_place(one["uuid"], document) for one in streams]
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


def _several(streams: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Give the probes of whose method there is more than one version."""
    versions: dict[str, set[int]] = {}
    for one in streams:
        versions.setdefault(one["probe"], set()).add(one["version"])
    return frozenset(probe for probe, known in versions.items() if len(known) > 1)


def _baseline(one: Mapping[str, Any], several: Collection[str]) -> tuple[str, ...]:
    slowdown, usual, unit = one["slowdown"], one["usual"], one["unit"]
    now = None
    if slowdown is not None and usual is not None and unit is not None:
        rate = unit in {Unit.BYTES_PER_SECOND, Unit.FLOPS_PER_SECOND}
        now = usual / slowdown if rate else usual * slowdown
    return tuple(
        map(
            escaped,
            (
                _name(one, several)[:LONGEST],
                UNKNOWN if usual is None or unit is None else human(usual, unit),
                UNKNOWN if now is None else human(now, unit),
                UNKNOWN if slowdown is None else compared(slowdown),
                f"{one['judged']:,}",
                _verdict(one["verdict"], still=bool(one["open"])),
            ),
        )
    )


def _verdict(verdict: Mapping[str, Any] | None, *, still: bool) -> str:
    """Say what is known of the latest driver: "576.02: regressed since 2026-11-05".

    ``still``: whether the stream is slower than what is taken for normal.
    """
    if verdict is None:
        return ""
    state = str(verdict["state"])
    if state == "regressed" and not still:
        day = _day(verdict["since_s"])
        return f"{verdict['new_driver']}: regressed on {day}, over or accepted"
    words = {"no_change": "no change seen", "none": "no verdict"}.get(state, state)
    if verdict.get("limit") is not None and state in {"no_change", "undecided"}:
        words += f" (+-{100 * verdict['limit']:.0f} %)"
    based = f", {verdict['samples']} runs" if state in {"learning", "undecided"} else ""
    return f"{verdict['new_driver']}: {words}{based} since {_day(verdict['since_s'])}"


def choice_name(choice: Choice, document: Mapping[str, Any]) -> str:
    """Name what a person chose: "GPU 0 launch submit", "launch", "everything"."""
    what = name_of(choice.probe, choice.mode or choice.probe) if choice.probe else choice.mode or ""
    gpu = None if choice.gpu == CPU else choice.gpu
    where = "" if choice.gpu is None else _place(gpu, document)
    return escaped(f"{where} {what}".strip()) or "everything"


def accept_lines(choices: Sequence[Choice], document: Mapping[str, Any]) -> list[str]:
    """List what is slower of what was chosen, and what is still learning and cannot be accepted.

    Errors: ``GpudError`` where all of it is still learning.
    """
    streams = [
        one
        for one in document.get("streams") or ()
        if any(each.fits((one["uuid"] or CPU, one["probe"], one["mode"])) for each in choices)
    ]
    learning = [one for one in streams if _learning(one)]
    names = ", ".join(
        dict.fromkeys(f"{_place(one['uuid'], document)} {_name(one)}" for one in learning)
    )
    if streams and len(learning) == len(streams):
        raise GpudError(
            f"nothing to accept, what is usual is still being learnt: {names}",
            fix="wait for more runs; `gpud baseline show` counts them",
        )
    shown = []
    for one in streams:
        if one["open"]:
            name, usual, now, change, *_ = _baseline(one, ())
            where = escaped(_place(one["uuid"], document))
            shown.append(f"  {where} {name}: {usual} -> {now}, {change}")
    shown = shown or ["  nothing of it is slower than usual"]
    if names:
        shown += _within(escaped(f"  still learning, not accepted: {names}"))
    return shown


def _learning(one: Mapping[str, Any]) -> bool:
    """Return whether a stream has nothing to accept yet: no level and no new driver on trial."""
    trial = one["verdict"] is not None and one["verdict"]["state"] in {"learning", "undecided"}
    return one["slowdown"] is None and not one["open"] and not trial


def alerts(document: Mapping[str, Any], *, ended: bool) -> list[dict[str, Any]]:
    """Give the alerts of a document, those that fire first; ``ended`` ones only if wanted."""
    found = [one for one in document.get("alerts") or () if ended or one["ends_s"] is None]
    return sorted(found, key=lambda one: (one["ends_s"] is not None, -one["starts_s"]))


def alert_lines(found: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> list[str]:
    """Say what is wrong: what and how much, since when, the evidence, the causes, the fix."""
    firing = [one for one in found if one["ends_s"] is None]
    names = _short([one["fingerprint"] for one in found])
    shown = [_count(len(firing))]
    for one in found:
        shown += ["", *_alert(one, names[one["fingerprint"]], document)]
    unseen = [one for one in firing if one.get("acknowledged_s") is None]
    if unseen:
        name = names[unseen[0]["fingerprint"]]
        normal = f"   it is normal now: gpud baseline accept {name}"
        normal = normal if unseen[0].get("evidence") else ""
        shown += ["", f"  seen it: gpud alerts ack {name}{normal}"]
    return [line for text in shown for line in _within(rezoned(escaped(text), _moment))]


def _alert(one: Mapping[str, Any], name: str, document: Mapping[str, Any]) -> Iterator[str]:
    until = "" if one["ends_s"] is None else f", ended {_moment(one['ends_s'])}"
    seen_s = one.get("acknowledged_s")
    seen = "" if seen_s is None else f", acknowledged {_moment(seen_s)}"
    since = _moment(began_s(one))
    yield f"  {name}  {one['name']}, {one['severity']}, since {since}{until}{seen}"
    yield f"    {one['summary']}"
    for piece in one.get("evidence") or ():
        stream = piece["stream"]
        before, after = (human(piece[side], piece["unit"]) for side in ("before", "after"))
        ends = f"{100 * (piece['low'] - 1):.1f} to {100 * (piece['high'] - 1):.1f} %"
        yield (
            f"    {_place(stream['gpu'], document)} {_name(stream)}: {before} -> {after}, "
            f"{100 * (piece['slowdown'] - 1):.0f} % slower ({ends}), {piece['samples']} samples"
        )
    for cause in one.get("causes") or ():
        yield f"    because: {_cause(cause)}"
    if one.get("fix"):
        yield f"    fix: {one['fix']}"


def _cause(cause: Mapping[str, Any]) -> str:
    from gpud.agent.regression import causes
    from gpud.core.alerts import Cause

    return causes.words(Cause(cause["kind"], cause["old"], cause["new"], cause["detail"]))


def _count(firing: int) -> str:
    if not firing:
        return "no alert fires"
    return "1 alert fires" if firing == 1 else f"{firing} alerts fire"


def _short(fingerprints: Sequence[str]) -> dict[str, str]:
    """Give each fingerprint as it is shown: its beginning, where that is like no other's."""
    begun = [one[:SHORT] for one in fingerprints]
    return {
        one: start if begun.count(start) == fingerprints.count(one) else one
        for one, start in zip(fingerprints, begun, strict=True)
    }


def _place(uuid: str | None, document: Mapping[str, Any]) -> str:
    """Name a GPU by its number, and the CPU."""
    gpu = (document.get("gpus") or {}).get(uuid)
    return "CPU" if uuid is None else f"GPU {gpu['number']}" if gpu else uuid


def _name(parts: Mapping[str, Any], several: Collection[str] = ()) -> str:
    """Name a stream beside its GPU, as the options of ``gpud baseline`` do."""
    version = f" v{parts['version']}" if parts["probe"] in several else ""
    name = name_of(parts["probe"], parts["mode"])
    return f"{name}{version}{', on battery' if parts['on_battery'] else ''}"


def _moment(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at_s))


def _within(text: str) -> list[str]:
    """Break a line that is too long, behind its own indent."""
    if len(text) <= WIDTH:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
