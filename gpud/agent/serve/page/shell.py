"""Whole page: its head, what leads through it, the sections in their order, its foot."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import (
    alerts,
    curves,
    docker,
    drivers,
    figures,
    gpus,
    parts,
    state,
    tables,
)
from gpud.agent.serve.page.parts import code, link, moment
from gpud.show.headline import headline
from gpud.show.markup import Html, el, joined, text

if TYPE_CHECKING:
    from gpud.agent.serve.page.view import View

SECTIONS: Final = (
    ("alerts", "Alerts", alerts.section),
    ("docker", "Docker", docker.section),
    ("gpus", "GPUs", gpus.section),
    ("figures", "Figures", figures.section),
    ("distribution", "Distribution", curves.distribution),
    ("crossover", "Crossover", curves.crossover),
    ("drivers", "Drivers", drivers.section),
    ("events", "Changes", tables.changes),
    ("skips", "Left out", tables.skips),
    ("health", "Health", tables.health),
    ("telemetry", "Telemetry", tables.telemetry),
    ("cost", "Cost", tables.cost),
    ("sinks", "Sinks", tables.sinks),
)
"""Name, how the navigation calls it, and what draws it; the order is that of the page."""
COLOURS: Final = {"ok": "1a7f37", "degraded": "9a6700", "failed": "b3261e", "starting": "5c636b"}
"""The sign in the browser's tab, on light and dark alike."""


def page(view: View) -> str:
    """Draw the page. The same view gives the same text."""
    said = headline(view.document)
    drawn = [(name, label, draw(view)) for name, label, draw in SECTIONS]
    shown = [(name, label, html) for name, label, html in drawn if html]
    host = f" on {view.host}" if view.host else ""
    title = f"{said.word}: gpud{host}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", text(title, 200)),
        el("link", rel="icon", href=_favicon(said.state)),
        el("link", rel="stylesheet", href=view.style),
        *(el("link", rel="modulepreload", href=one) for one in view.modules),
        el("script", src=view.script, type="module") if view.script else None,
    )
    body = el(
        "body",
        el("a", "Skip to the state", href="#main", class_="skip"),
        el(
            "header",
            el("p", el("strong", "gpud"), text(host, 100)),
            el(
                "nav",
                el("ul", *(el("li", link(f"#{name}", label)) for name, label, _ in shown)),
                aria_label="Sections",
            ),
        ),
        el(
            "main",
            state.section(view, said),
            *(html for _, _, html in shown),
            id="main",
            tabindex=-1,
            data_shape=_shape(shown),
        ),
        _foot(view),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en', data_state=said.state)}\n"


def _shape(shown: list[tuple[str, str, Html]]) -> str:
    """Name which sections and figures there are: with other ones the page has to be loaded anew."""
    names = [name for name, _, _ in shown]
    for _, _, html in shown:
        names += [part.partition('"')[0] for part in html.split('<figure class="chart" id="')[1:]]
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:12]


def _favicon(state: str) -> str:
    colour = COLOURS[state]
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        f"%3Ccircle cx='8' cy='8' r='7' fill='%23{colour}'/%3E%3C/svg%3E"
    )


LINKS: Final = (
    ("/metrics", "metrics"),
    ("/api/v1/status", "status as JSON"),
    ("/api/v1/alerts?since=0", "all alerts"),
    ("/api/v1/events", "events"),
    ("/api/v1/openapi.json", "API description"),
    ("/runbooks/", "runbooks"),
)


def _foot(view: View) -> Html:
    document = view.document
    platform = ", ".join(f"{key} {value}" for key, value in sorted(document.platform.items()))
    return el(
        "footer",
        el("ul", *(el("li", link(to, words)) for to, words in LINKS)),
        parts.facts(
            [
                ("gpud", text(document.version, 60)),
                ("running since", moment(document.started_s, "at")),
                ("machine", text(platform, 400) if platform else parts.UNKNOWN),
                ("settings", code(view.config) if view.config else parts.UNKNOWN),
                ("in a terminal", joined(code("gpud status"), ", ", code("gpud doctor"))),
            ]
        ),
    )
