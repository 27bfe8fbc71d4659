"""Screen of ``gpud status``: the agent's document drawn as lines. Imports nothing that is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.show import cards, figures, parts
from gpud.show.view import line, narrowed

if TYPE_CHECKING:
    from gpud.show.document import Status
    from gpud.show.view import Line, View


def drawn(document: Status, now_s: float, view: View) -> list[Line]:
    """Draw the document into a view: what is wrong first, the GPUs, the figures, what else.

    Everything is told where that fits the height; else one mode of each probe and no blank lines.
    Units: ``now_s`` is Unix time. Whatever a driver or a file says in it is made harmless.
    """
    whole = _whole(document, now_s, view)
    if view.height is None or len(whole) < view.height:
        return whole
    return _brief(document, now_s, view)


def _whole(document: Status, now_s: float, view: View) -> list[Line]:
    sections = (
        parts.alerts(document),
        parts.health(document, now_s, view),
        cards.docker(document),
        *cards.gpus(document, figures.places(document), now_s, view),
        parts.missing(document, view),
        parts.changed(document, view),
        parts.titled("slower or faster than before", parts.streams(document, now_s)),
        parts.titled("not on offer", parts.missing_modes(document)),
        parts.titled("skipped", parts.left_out(document)),
        [*cards.cost(document, now_s), *cards.page(document)],
    )
    shown = parts.title(document, now_s)
    for section in sections:
        shown += [line(), *section] if section else []
    return narrowed(shown, view)


def _brief(document: Status, now_s: float, view: View) -> list[Line]:
    tables = figures.places(document, brief=True)
    hidden = sum(len(probe.samples) for probe in document.probes) - sum(map(len, tables.values()))
    sections = (
        parts.title(document, now_s),
        parts.alerts(document),
        parts.health(document, now_s, view, brief=True),
        cards.docker(document),
        *cards.gpus(document, tables, now_s, view, brief=True),
        parts.streams(document, now_s),
        parts.left_out(document),
        parts.changed(document, view, most=1),
        cards.more(hidden),
        cards.last(document, now_s, view),
    )
    return narrowed([one for section in sections for one in section], view)
