"""Alerts section: the summary, the evidence as a table, the likely causes, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.regression.causes import words as cause_words
from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import code, link, mark, moment
from gpud.core.stats import compared, human
from gpud.show.markup import Html, el, joined, text
from gpud.show.probewords import figure_of, name_of
from gpud.show.units import span

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View
    from gpud.show.document import Alert, Evidence

MOST = 20
"""Alerts that are drawn; more are counted."""
STREAMS = 30
SUMMARY = 400
HEADINGS = ("figure", "change", "before", "after", "on", "nine times in ten", "runs", "since")
"""The first ones are what a phone shows without being scrolled."""


def section(view: View) -> Html:
    """Draw every alert that fires, those that nobody has seen first."""
    firing = [one for one in view.document.alerts if one.firing]
    firing.sort(
        key=lambda one: (
            one.acknowledged_s is not None,
            one.severity != "critical",
            one.starts_s,
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


def _alert(view: View, one: Alert) -> Html:
    print_ = one.fingerprint[:16]
    acknowledged = one.acknowledged_s is not None
    state = "starting" if acknowledged else _state(one.severity)
    said = [mark(state, one.severity), joined("since ", moment(one.began_s, "at"))]
    if one.acknowledged_s is not None:
        said.append(joined("acknowledged ", moment(one.acknowledged_s)))
    links = [el("span", link(str(one.runbook), "what this means and what to do"))]
    if not acknowledged:
        links.append(el("span", "seen it: ", code(f"gpud alerts ack {print_[:8]}")))
    return el(
        "article",
        el("h3", parts.sentence(one.summary, SUMMARY), id=f"alert-{print_}"),
        el("p", *(el("span", part) for part in said), class_="beside quiet"),
        _evidence(view, one, print_),
        _causes(one),
        parts.todo(one.fix),
        el("p", *links, class_="beside quiet"),
        class_=f"alert {state}",
        aria_labelledby=f"alert-{print_}",
    )


def _state(severity: str) -> str:
    return {"critical": "failed", "info": "starting"}.get(severity, "degraded")


def _evidence(view: View, one: Alert, print_: str) -> Html:
    """One row for each figure that moved; alerts of what broke have none, and say it in words."""
    told = one.evidence
    if not told:
        if one.description == one.summary:
            return Html("")
        return el("p", parts.sentence(one.description), class_="lines")
    rows = [_row(view, each) for each in told[:STREAMS]]
    more = len(told) - STREAMS
    caption = "Evidence" + (f": the first {STREAMS} of {len(told)} figures" if more > 0 else "")
    return parts.table(
        f"evidence-{print_}", caption, HEADINGS, rows, figures=(1, 2, 3, 5, 6), hidden_caption=True
    )


def _row(view: View, one: Evidence) -> tuple[Html | str, ...]:
    key = one.stream
    where = view.document.place(key.gpu)[:40]
    return (
        parts.figure_name(figure_of(key), name_of(key.probe, key.mode)),
        _change(one),
        human(one.before, one.unit),
        human(one.after, one.unit),
        f"{where}, on battery" if key.on_battery else where,
        span(one.low, one.high),
        f"{one.samples} after {one.reference}",
        moment(one.since_s, "at"),
    )


def _change(one: Evidence) -> Html:
    """Say how much longer work takes; of a rate also by how much it fell, as the head says it."""
    slower = el("strong", compared(one.slowdown))
    if one.after >= one.before:
        return slower
    fell = 100 * (one.after / one.before - 1)
    return joined(slower, el("span", f"{fell:.0f} % of the rate", class_="aside"))


def _causes(one: Alert) -> Html:
    if not one.causes:
        return Html("")
    items = [el("li", text(cause_words(cause), SUMMARY)) for cause in one.causes]
    return joined(el("p", el("strong", "Likely cause, the likeliest first:")), el("ul", *items))
