"""Which drivers there were, and what is known of the present one beside the one before it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.regression.detector import State
from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import mark, moment
from gpud.core.stats import compared
from gpud.core.stream_key import StreamKey
from gpud.show import gpu_table
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import figure_of, rank
from gpud.show.standingwords import slowdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.serve.page.view import View

NAME: Final = 60
MOST: Final = 60
"""Rows; `gpud baseline show` has all of them."""
ORDER: Final = (
    State.REGRESSED,
    State.IMPROVED,
    State.UNDECIDED,
    State.LEARNING,
    State.NO_CHANGE,
    State.NONE,
)
NOTHING_KNOWN: Final = gpu_table.versions({})
QUIET: Final = frozenset({State.NO_CHANGE, State.NONE})
HEADINGS: Final = ("figure", "on", "driver", "verdict", "runs", "since")
WORDS: Final = {
    State.REGRESSED: "slower",
    State.IMPROVED: "faster",
    State.UNDECIDED: "undecided",
    State.LEARNING: "learning",
    State.NO_CHANGE: "no change",
    State.NONE: "no verdict",
}


def section(view: View) -> Html:
    """Draw the drivers there were, and the verdict on each figure under the newest."""
    judged = [one for one in view.document["streams"] if one["verdict"]]
    judged.sort(key=_order)
    told = [one for one in judged if one["verdict"]["state"] not in QUIET]
    rest = [one for one in judged if one["verdict"]["state"] in QUIET]
    return parts.section(
        "drivers",
        "Drivers",
        _now(view, judged),
        _timeline(view),
        _table(view, "verdicts", "Verdicts on the newest driver", told),
        parts.details(
            "verdicts-rest",
            f"{len(rest)} without a change",
            _table(view, "unchanged", "Figures without a change", rest),
        )
        if rest
        else None,
        class_="wide",
    )


def _table(view: View, name: str, caption: str, judged: Sequence[Mapping[str, Any]]) -> Html:
    rows = [_row(view, one) for one in judged[:MOST]]
    more = len(judged) - MOST
    return joined(
        parts.table(name, caption, HEADINGS, rows, hidden_caption=True),
        el("p", f"and {more} more: ", parts.code("gpud baseline show")) if more > 0 else None,
    )


def _order(one: Mapping[str, Any]) -> tuple[Any, ...]:
    state = one["verdict"]["state"]
    place = ORDER.index(state) if state in ORDER else len(ORDER)
    return (place, one["uuid"] is None, one["gpu"] or 0, rank(_key(one)), one["mode"])


def _key(one: Mapping[str, Any]) -> StreamKey:
    return StreamKey(one["uuid"], one["probe"], one["mode"], one["version"], one["on_battery"])


def _now(view: View, judged: Sequence[Any]) -> Html:
    """Name what is there now, and count the verdicts on it; nothing where no driver is known."""
    versions = gpu_table.versions(view.document)
    if not judged and versions == NOTHING_KNOWN:
        return Html("")
    counts = Counter(one["verdict"]["state"] for one in judged)
    told = [f"{counts[state]} {WORDS[state]}" for state in ORDER if counts[state]]
    said = f"Figures judged: {', '.join(told)}." if told else "No figure has been judged under it."
    return el("p", "Now: ", text(versions), ". ", said)


def _timeline(view: View) -> Html:
    """List what drivers there were, the newest first."""
    changes = [
        one
        for one in view.document["changes"]
        if one["kind"] == "driver_version" and one["old"] is not None
    ]
    items = [
        el(
            "li",
            moment(one["at_s"], "at"),
            " ",
            text(f"{one['old']}", NAME),
            " \N{RIGHTWARDS ARROW} ",
            el("strong", text(one["new"], NAME)),
        )
        for one in reversed(changes)
    ]
    return el("ol", *items, class_="timeline") if items else Html("")


def _row(view: View, one: Mapping[str, Any]) -> tuple[Child, ...]:
    verdict = one["verdict"]
    where = (
        "CPU"
        if one["uuid"] is None
        else view.place(one["gpu"])
        if one["gpu"] is not None
        else "GPU that is gone"
    )
    old, new = (verdict[name][:NAME] for name in ("old_driver", "new_driver"))
    return (
        figure_of(_key(one)),
        f"{where}, on battery" if one["on_battery"] else where,
        joined(text(old), " \N{RIGHTWARDS ARROW} ", text(new)),
        _verdict(verdict),
        f"{verdict['samples']} after {verdict['reference']}",
        moment(verdict["since_s"], "at"),
    )


def _verdict(one: Mapping[str, Any]) -> Html:
    """Put a verdict into words, with what it cannot see."""
    state, effect, limit = one["state"], one["effect"], one["limit"]
    if state == State.REGRESSED and effect:
        return mark("failed", f"{compared(slowdown(effect))} ({_span(effect)})")
    if state == State.IMPROVED and effect:
        return mark("ok", f"{compared(1 / slowdown(effect))}")
    if state == State.NO_CHANGE:
        within = f" beyond \N{PLUS-MINUS SIGN}{100 * limit:.1f} %" if limit else ""
        return mark("ok", f"no change{within}")
    if state == State.NONE:
        return joined("no verdict", f": {one['why'][:200]}" if one["why"] else None)
    return joined(mark("starting", WORDS.get(state, state)), ", samples so far are too few")


def _span(effect: Mapping[str, float]) -> str:
    ends = (effect["low"], effect["high"])
    times = sorted(ends if effect["ratio"] > 1 else [1 / end for end in ends])
    return f"{100 * (times[0] - 1):.1f} to {100 * (times[1] - 1):.1f} %"
