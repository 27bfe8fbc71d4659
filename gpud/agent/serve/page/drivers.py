"""Drivers section: which there were, and the verdict on each figure under the newest."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.agent.regression.detector import VerdictState
from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import mark, moment
from gpud.core.stats import compared
from gpud.show import gpu_table
from gpud.show.document import Status
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import figure_of, rank
from gpud.show.units import interval, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.serve.page.view import View
    from gpud.show.document import Stream, Verdict

    Judged = tuple[Stream, Verdict]

ARROW: Final = " \N{RIGHTWARDS ARROW} "
NAME: Final = 60
MOST: Final = 60
"""Rows; `gpud baseline show` has all of them."""
ORDER: Final = (
    VerdictState.REGRESSED,
    VerdictState.IMPROVED,
    VerdictState.UNDECIDED,
    VerdictState.LEARNING,
    VerdictState.NO_CHANGE,
    VerdictState.NONE,
)
NOTHING_KNOWN: Final = gpu_table.versions(Status())
QUIET: Final = frozenset({VerdictState.NO_CHANGE, VerdictState.NONE})
HEADINGS: Final = ("figure", "on", "driver", "verdict", "runs", "since")
WORDS: Final = {
    VerdictState.REGRESSED: "slower",
    VerdictState.IMPROVED: "faster",
    VerdictState.UNDECIDED: "undecided",
    VerdictState.LEARNING: "learning",
    VerdictState.NO_CHANGE: "no change",
    VerdictState.NONE: "no verdict",
}


def section(view: View) -> Html:
    """Draw the drivers there were, and the verdict on each figure under the newest."""
    judged = [(one, one.verdict) for one in view.document.streams if one.verdict]
    judged.sort(key=_order)
    told = [each for each in judged if each[1].state not in QUIET]
    rest = [each for each in judged if each[1].state in QUIET]
    unchanged = _table("unchanged", "Figures without a change", rest)
    return parts.section(
        "drivers",
        "Drivers",
        _now(view, judged),
        _timeline(view),
        _table("verdicts", "Verdicts on the newest driver", told),
        parts.details("verdicts-rest", f"{len(rest)} without a change", unchanged)
        if rest
        else None,
        class_="wide",
    )


def _table(name: str, caption: str, judged: Sequence[Judged]) -> Html:
    rows = [_row(one, verdict) for one, verdict in judged[:MOST]]
    more = len(judged) - MOST
    return joined(
        parts.table(name, caption, HEADINGS, rows, hidden_caption=True),
        el("p", f"and {more} more: ", parts.code("gpud baseline show")) if more > 0 else None,
    )


def _order(judged: Judged) -> tuple[int, bool, int, int, str]:
    one, verdict = judged
    at = ORDER.index(VerdictState(verdict.state)) if verdict.state in ORDER else len(ORDER)
    return (at, one.uuid is None, one.gpu or 0, rank(one), one.mode)


def _now(view: View, judged: Sequence[Judged]) -> Html:
    """Name what is there now, and count the verdicts on it; nothing where no driver is known."""
    versions = gpu_table.versions(view.document)
    if not judged and versions == NOTHING_KNOWN:
        return Html("")
    counts = Counter(verdict.state for _, verdict in judged)
    told = [f"{counts[state]} {WORDS[state]}" for state in ORDER if counts[state]]
    said = f"Figures judged: {', '.join(told)}." if told else "No figure has been judged under it."
    return el("p", "Now: ", text(versions), ". ", said)


def _timeline(view: View) -> Html:
    """List what drivers there were, the newest first."""
    items = [
        el(
            "li",
            moment(one.at_s, "at"),
            " ",
            text(one.old, NAME),
            ARROW,
            el("strong", text(str(one.new), NAME)),
        )
        for one in reversed(view.document.changes)
        if one.kind == "driver_version" and one.old is not None
    ]
    return el("ol", *items, class_="timeline") if items else Html("")


def _row(one: Stream, verdict: Verdict) -> tuple[Child, ...]:
    gone = one.uuid is not None and one.gpu is None
    where = "GPU that is gone" if gone else place(one.gpu)
    return (
        figure_of(one),
        f"{where}, on battery" if one.on_battery else where,
        joined(text(verdict.old_driver[:NAME]), ARROW, text(verdict.new_driver[:NAME])),
        _verdict(verdict),
        f"{verdict.samples} after {verdict.reference}",
        moment(verdict.since_s, "at"),
    )


def _verdict(one: Verdict) -> Html:
    """Put a verdict into words, with what it cannot see."""
    if one.state == VerdictState.REGRESSED and one.effect:
        return mark("failed", f"{compared(one.effect.slowdown)} ({interval(one.effect)})")
    if one.state == VerdictState.IMPROVED and one.effect:
        return mark("ok", compared(1 / one.effect.slowdown))
    if one.state == VerdictState.NO_CHANGE:
        within = f" beyond \N{PLUS-MINUS SIGN}{100 * one.limit:.1f} %" if one.limit else ""
        return mark("ok", f"no change{within}")
    if one.state == VerdictState.NONE:
        return joined("no verdict", f": {one.why[:200]}" if one.why else None)
    words = WORDS[VerdictState(one.state)] if one.state in WORDS else one.state
    return joined(mark("starting", words), ", samples so far are too few")
