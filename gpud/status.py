"""What ``gpud status`` shows a person: the agent's document drawn as one screen of plain lines.

Imports nothing that takes time: the command answers at once.
"""

from __future__ import annotations

import time
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from gpud.core import gpu_table, stream_lines
from gpud.core.stats import figure
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LEVELS = ("ok", "degraded", "FAILED")
WIDTH = 100
"""Lists are broken there; a sentence that quotes a driver is left to the terminal."""
MOST_ALERTS = 3
LATEST = 3
"""Changes that are shown; all of them are in /api/v1/events."""


def lines(document: dict[str, Any], now_s: float) -> list[str]:
    """Draw the status document: what is not well with its cause and fix, the GPUs, the figures.

    Units: ``now_s`` is Unix time. Whatever a driver or a file says in it is made harmless.
    """
    parts = (
        _alerts(document),
        _health(document),
        _gpus(document, now_s),
        _titled("last figures (median)", _figures(document["probes"])),
        _titled("slower or faster than before", _streams(document, now_s)),
        _titled("not on offer", _missing_modes(document["probes"])),
        _titled("left out", _left_out(document)),
    )
    n = len(unseen(document))
    told = f", {n} alert{'' if n == 1 else 's'}" if n else ""
    shown = [f"gpud {document['version']}: {document['state']}{told}"]
    for part in parts:
        shown += ["", *part] if part else []
    return [escaped(line) for line in shown]


def unseen(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Give what fires and nobody has acknowledged."""
    return [one for one in _firing(document) if one["acknowledged_s"] is None]


def _firing(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document.get("alerts") or () if one["firing"]]


def _alerts(document: dict[str, Any]) -> list[str]:
    """What fires and nobody has acknowledged, with what to do; the rest only counted."""
    firing, waiting = _firing(document), unseen(document)
    shown: list[str] = []
    for one in waiting[:MOST_ALERTS]:
        shown.append(f"  {one['severity'].upper()}: {one['summary']}")
        if one["fix"]:
            shown.append(f"  {'':<10} fix: {one['fix']}")
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["starts_s"]))
        shown.append(
            f"  {'':<10} since {since}; seen it: sudo gpud alerts ack {one['fingerprint'][:8]}"
        )
    more = len(waiting) - MOST_ALERTS
    known = len(firing) - len(waiting)
    rest = [f"{more} more"] * (more > 0) + [f"{known} acknowledged"] * bool(known)
    return [*shown, *([f"  alerts: {', '.join(rest)}; all of them: gpud alerts"] if rest else [])]


def _health(document: dict[str, Any]) -> list[str]:
    """Parts that have the same to say together, a fix only once; those that are well last."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, health in sorted(document["health"].items()):
        said = health["level"], health.get("detail"), health.get("fix")
        alike.setdefault(said, []).append(name)
    well = alike.pop((0, None, None), [])
    shown: list[str] = []
    told: dict[str, str] = {}
    for (level, detail, fix), names in alike.items():
        shown.append(f"  {', '.join(names):<10} {LEVELS[level]}")
        if detail:
            shown.append(f"  {'':<10} because: {detail}")
        if fix:
            shown.append(f"  {'':<10} fix: {f'as for {told[fix]}' if fix in told else fix}")
            told.setdefault(fix, names[0])
    retry_s = (document.get("breaker") or {}).get("retry_s")
    if retry_s is not None:
        shown.append(f"  GPU work is tried again at {time.strftime('%X', time.localtime(retry_s))}")
    return [*shown, *_listed(f"{'ok':<10}", well)]


def _gpus(document: dict[str, Any], now_s: float) -> list[str]:
    """The table of GPUs, why cells of it are empty, and what changed under them."""
    rows, source = gpu_table.rows(document), gpu_table.source(document, now_s)
    shown = []
    if rows:
        shown = [f"  GPUs: {gpu_table.versions(document)}; telemetry from {source}"]
        shown += _columns([gpu_table.HEADINGS, *rows])
        why = gpu_table.missing(document)
        shown += _listed("", why.split(", ") if why else [])
    elif document["telemetry"].get("sources"):
        shown = [f"  GPUs: none {'that answers' if document.get('expected') else 'known'}"]
    for at_s, words in gpu_table.changes(document)[-LATEST:]:
        shown += _listed(f"changed {_moment(at_s)}:", words)
    return shown


def _figures(probes: Sequence[dict[str, Any]]) -> list[str]:
    """A probe with several modes on lines of its own; those with one share the lines of a GPU."""
    alone: dict[str, list[str]] = {}
    several = []
    for state in sorted(probes, key=lambda state: (state["probe"], _place(state))):
        figures = [f"{sample['mode']} {figure(sample)}" for sample in state["samples"]]
        if not figures:
            continue
        if state["flags"]:
            figures[-1] += f" ({', '.join(state['flags'])})"
        if len(figures) == 1:
            words = figures[0].partition(" ")[2]
            alone.setdefault(_place(state), []).append(f"{state['probe']} {words}")
        else:
            several += _listed(f"{_place(state):<6} {state['probe']:<10}", figures)
    return [
        line for place in sorted(alone) for line in _listed(f"{place:<6}", alone[place])
    ] + several


def _streams(document: dict[str, Any], now_s: float) -> list[str]:
    said = stream_lines.lines(document, now_s, _moment)
    return [f"  {line}" for line in said]


def _moment(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))


def _missing_modes(probes: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"  {_place(state):<6} {state['probe']:<10} {gap['mode']}: {_plain(gap['reason'])}"
        for state in probes
        for gap in state["missing"]
    ]


def _left_out(document: dict[str, Any]) -> list[str]:
    """What is put off; not what waits for a GPU where there is none to wait for."""
    cuda = document["health"].get("cuda", {})
    vain = "no_gpu" if not cuda.get("level") and cuda.get("reason") else None
    return [
        f"  {'' if one['gpu'] is None else _place(one):<6} {one['probe']:<10} "
        f"{_plain(one['reason'])}, {one['count']} in a row"
        for one in sorted(document["put_off"], key=lambda one: (one["probe"], _place(one)))
        if one["reason"] != vain
    ]


def _titled(title: str, rows: list[str]) -> list[str]:
    return [f"  {title}", *rows] if rows else []


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align cells; none is cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(["", *map(str.ljust, row, widths)]).rstrip() for row in rows]


def _listed(head: str, words: Sequence[str]) -> list[str]:
    """Write words with commas behind a head, over as many lines as it takes; none for none."""
    if not words:
        return []
    start = f"  {head} " if head else "  "
    broken = wrap(
        ", ".join(word.replace(" ", "\xa0") for word in words),  # a figure stays with its unit
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in broken]


def _plain(slug: str) -> str:
    return slug.replace("_", " ")


def _place(state: dict[str, Any]) -> str:
    return "CPU" if state["gpu"] is None else f"GPU {state['gpu']}"
