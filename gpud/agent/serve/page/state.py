"""State section, first on the page: one word, since when, why, what to do, what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.page.parts import advice, code, icon, link, moment, sentence
from gpud.show import gpu_table
from gpud.show.headline import OK
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.units import place

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View
    from gpud.show.headline import Headline

SENTENCE = 600
"""Characters of the one sentence; the whole of it stands below."""


def section(view: View, said: Headline) -> Html:
    """Draw the state line and what belongs to it. Only the line itself is read out on a change."""
    since = joined("since ", moment(said.since_s, "at")) if said.since_s is not None else None
    word = el("span", icon(said.state), el("span", said.word), class_=f"word {said.state}")
    line = el(
        "div",
        el("h1", el("span", "gpud: ", class_="hidden"), word, id="state-title"),
        el("p", since, class_="since") if since else None,
        el("p", sentence(said.why, SENTENCE), class_="why"),
        id="state-line",
        data_live=True,
        role="status",
        aria_live="polite",
        aria_atomic="true",
    )
    return el(
        "section",
        line,
        el("div", _todo(said), _changed(view), _age(view), id="state-rest", data_live=True),
        id="state",
        class_=f"wide state {said.state}",
        aria_labelledby="state-title",
    )


def _todo(said: Headline) -> Html:
    """Say what to do; a fix names the command where there is one."""
    parts: list[Child] = []
    if said.fix:
        label = "To do: " if said.state != OK else "Hint: "
        parts.append(joined(el("strong", label), advice(said.fix)))
    elif said.state in {"degraded", "failed"}:
        parts.append(joined(el("strong", "To do: "), code("gpud doctor"), " looks for the cause"))
    if said.about:
        parts.append(link(said.about, "what this means"))
    if said.more:
        parts.append(f"{said.more} more {'is' if said.more == 1 else 'are'} told below")
    return el("p", *(el("span", part) for part in parts), class_="todo") if parts else Html("")


def _changed(view: View) -> Html:
    told = gpu_table.changes(view.document)
    if not told:
        return Html("")
    at_s, words = told[-1]
    said = text(", ".join(words), SENTENCE)
    return el("p", "Changed last: ", said, ", ", moment(at_s), class_="quiet")


def _age(view: View) -> Html:
    document = view.document
    moments = [document.telemetry.taken_s, *(one.last_success_s for one in document.probes)]
    moments += [document.root.written_s] if document.root else []
    at_s = max((one for one in moments if one is not None), default=None)
    old = [one for one in view.probes if not view.is_fresh(one)]
    said = (
        el("p", "Nothing has been measured yet.", class_="quiet")
        if at_s is None
        else el("p", "Newest data: ", moment(at_s), class_="quiet")
    )
    if not old:
        return said
    names = sorted({f"{one.probe} ({place(one.gpu)})" for one in old})
    words = text(", ".join(names), SENTENCE)
    return joined(
        said, el("p", icon("degraded"), " Too old to stand for now: ", words, class_="old")
    )
