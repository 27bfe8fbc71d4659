"""What fires: the summary, the evidence as a table, the likely causes, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpud.agent.regression import causes
from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import code, link, mark, moment
from gpud.core.alerts import Cause
from gpud.core.stats import compared, human
from gpud.core.stream_key import StreamKey
from gpud.show.headline import began_s
from gpud.show.markup import Html, el, joined, text
from gpud.show.probewords import figure_of, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.serve.page.view import View

MOST = 20
"""Alerts that are drawn; more are counted."""
STREAMS = 30
SUMMARY = 400
HEADINGS = ("figure", "change", "before", "after", "on", "nine times in ten", "runs", "since")
"""The first ones are what a phone shows without being scrolled."""


def section(view: View) -> Html:
    """Draw every alert that fires, those that nobody has seen first."""
    firing = [one for one in view.document["alerts"] if one["firing"]]
    firing.sort(
        key=lambda one: (
            one["acknowledged_s"] is not None,
            one["severity"] != "critical",
            one["starts_s"],
        )
    )
    more = len(firing) - MOST
    return parts.section(
        "alerts",
        "Alerts",
        [_alert(view, one) for one in firing[:MOST]],
        el("p", f"and {more} more: ", code("gpud alerts")) if more > 0 else None,
        class_="wide",
    )


def _alert(view: View, one: Mapping[str, Any]) -> Html:
    print_ = str(one["fingerprint"])[:16]
    seen_s = one["acknowledged_s"]
    state = "starting" if seen_s is not None else _state(one["severity"])
    said = [mark(state, one["severity"]), joined("since ", moment(began_s(one), "at"))]
    if seen_s is not None:
        said.append(joined("acknowledged ", moment(seen_s)))
    return el(
        "article",
        el("h3", parts.sentence(one["summary"], SUMMARY), id=f"alert-{print_}"),
        el("p", *(el("span", part) for part in said), class_="beside quiet"),
        _evidence(view, one, print_),
        _causes(one),
        parts.todo(one.get("fix")),
        el(
            "p",
            el("span", link(str(one["runbook"]), "what this means and what to do")),
            None
            if seen_s is not None
            else el("span", "seen it: ", code(f"gpud alerts ack {print_[:8]}")),
            class_="beside quiet",
        ),
        class_=f"alert {state}",
        aria_labelledby=f"alert-{print_}",
    )


def _state(severity: str) -> str:
    return {"critical": "failed", "info": "starting"}.get(severity, "degraded")


def _evidence(view: View, one: Mapping[str, Any], print_: str) -> Html:
    """One row for each figure that moved; alerts of what broke have none, and say it in words."""
    told = one["evidence"]
    if not told:
        said = one["description"].partition("\n")
        whole = one["description"]
        if whole == one["summary"]:
            return Html("")
        return el("p", parts.sentence(said[0] if not said[2] else whole), class_="lines")
    rows = [_row(view, each) for each in told[:STREAMS]]
    more = len(told) - STREAMS
    caption = "Evidence" + (f": the first {STREAMS} of {len(told)} figures" if more > 0 else "")
    return parts.table(
        f"evidence-{print_}", caption, HEADINGS, rows, figures=(1, 2, 3, 5, 6), hidden_caption=True
    )


def _row(view: View, one: Mapping[str, Any]) -> tuple[Html | str, ...]:
    key, unit = StreamKey(**one["stream"]), str(one["unit"])
    known = view.document["gpus"].get(key.gpu)
    where = "CPU" if key.gpu is None else f"GPU {known['number']}" if known else key.gpu[:40]
    low, high = (100 * (end - 1) for end in (one["low"], one["high"]))
    return (
        parts.figure_name(figure_of(key), name_of(key.probe, key.mode)),
        _change(one),
        human(one["before"], unit),
        human(one["after"], unit),
        f"{where}, on battery" if key.on_battery else where,
        f"{low:.1f} to {high:.1f} %",
        f"{one['samples']} after {one['reference']}",
        moment(one["since_s"], "at"),
    )


def _change(one: Mapping[str, Any]) -> Html:
    """Say how much longer work takes; of a rate also by how much it fell, as the head says it."""
    slower = el("strong", compared(one["slowdown"]))
    if one["after"] >= one["before"]:
        return slower
    fell = 100 * (one["after"] / one["before"] - 1)
    return joined(slower, el("span", f"{fell:.0f} % of the rate", class_="aside"))


def _causes(one: Mapping[str, Any]) -> Html:
    told = [Cause(**cause) for cause in one["causes"]]
    if not told:
        return Html("")
    items = [el("li", text(causes.words(cause), SUMMARY)) for cause in told]
    return joined(el("p", el("strong", "Likely cause, the likeliest first:")), el("ul", *items))
