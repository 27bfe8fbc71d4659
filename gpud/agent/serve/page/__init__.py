"""The status page: one rendering of the status document as HTML, whole without a script. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec.structs import replace

from gpud.agent.serve.markup import Child, Html, el, joined, text
from gpud.agent.serve.page import html
from gpud.agent.serve.page.html import icon, inline, moment
from gpud.show import model
from gpud.show.figures import RANGES_S, suggested_range
from gpud.show.headline import headline
from gpud.show.known_faults import seen
from gpud.show.status import sections
from gpud.units import place, utc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.show.headline import Headline

MENU: Final = (("figures", "Speed"), ("gpus", "GPUs"), ("docker", "Docker"), ("events", "Changes"))
"""Sections that are open, and where a script is told to go; all others are folded."""
THEMES: Final = (("auto", "light dark"), ("light", "light"), ("dark", "dark"))
COLOURS: Final = {"ok": "1a7f37", "degraded": "9a6700", "failed": "b3261e", "starting": "5c636b"}
"""The sign in the browser's tab, on light and dark alike."""
UPLOT: Final = "/static/vendor/uPlot-1.6.32"
LINKS: Final = (
    ("/metrics", "metrics"),
    ("/api/v1/status", "status as JSON"),
    ("/api/v1/alerts?since=0", "all alerts"),
    ("/api/v1/events", "events"),
    ("/api/v1/openapi.json", "API description"),
    ("/runbooks/", "runbooks"),
)


def page(source: model.Input, host: str = "", config: str = "") -> str:
    """Write the page; the same input gives the same text. ``config``: the file of the settings."""
    state = headline(source.document)
    made = {section.name: section for section in sections(source)}
    alerts = made.pop("alerts", None)
    menu = [(name, words) for name, words in MENU if name in made]
    opened = [made.pop("faults")] if seen(source.document) else []
    if source.document.state != "ok" and (unsaid := _unsaid(made["health"], state.why)):
        opened.append(unsaid)
        del made["health"]
    opened += [made.pop(name) for name, _ in menu]
    host = f" on {host}" if host else ""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", text(f"{state.word}: gpud{host}", 200)),
        el("link", rel="icon", href=f"data:image/svg+xml,{quote(favicon(state.state))}"),
        el("link", rel="stylesheet", href=f"{UPLOT}/uPlot.min.css"),
        el("link", rel="stylesheet", href="/static/page.css"),
        el("script", src=f"{UPLOT}/uPlot.iife.min.js", defer=True),
        el("script", src="/static/main.js", type="module"),
    )
    details = el(
        "section",
        el("h2", "Details", id="details-title"),
        *(html.fold(section.name, section.title, section.blocks) for section in made.values()),
        id="details",
        class_="wide",
        aria_labelledby="details-title",
    )
    body = el(
        "body",
        el("a", "Skip to the state", href="#main", class_="skip"),
        _header(host, [*menu, ("details", "Details")]),
        el(
            "main",
            _state(source, state, alerts),
            *(html.section(s, _controls(source) if s.name == "figures" else None) for s in opened),
            details,
            id="main",
            tabindex=-1,
        ),
        _foot(source, config),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en', data_state=state.state)}\n"


def _unsaid(health: model.Section, why: str) -> model.Section | None:
    """Return the components that are not well but for what the state line says; None for none."""
    (table,) = health.blocks
    if not isinstance(table, model.Table):
        return None
    rows = [row for row in table.rows if getattr(row[2], "words", None) not in {None, *_parts(why)}]
    unwell = [row for row in rows if isinstance(row[1], model.Mark) and row[1].state != "ok"]
    return replace(health, blocks=[replace(table, rows=unwell)]) if unwell else None


def _parts(why: str) -> tuple[str, str]:
    """Return a sentence, and without the component before it."""
    return why, why.partition(": ")[2]


def _header(host: str, menu: Iterable[tuple[str, str]]) -> Html:
    links = (el("li", inline(model.Link(f"#{name}", words))) for name, words in menu)
    themes = (el("option", name, value=scheme) for name, scheme in THEMES)
    return el(
        "header",
        el("p", el("strong", "gpud"), text(host, 100)),
        el("nav", el("ul", *links), aria_label="Sections"),
        el("select", *themes, id="theme", aria_label="Colours", hidden=True),
    )


def favicon(state: str) -> str:
    """Draw the sign in the browser's tab: SVG, a disc in the colour of a state."""
    circle = f"<circle cx='8' cy='8' r='7' fill='#{COLOURS[state]}'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>{circle}</svg>"


def _state(source: model.Input, state: Headline, alerts: model.Section | None) -> Html:
    """Write the state line and what belongs to it. Only the line itself is read out on a change."""
    word = el("span", icon(state.state), el("span", state.word), class_=f"word {state.state}")
    since = None
    if state.since_s is not None and utc(state.since_s) not in state.why:
        since = el("p", "since ", moment(state.since_s), class_="since")
    line = el(
        "div",
        el("h1", el("span", "gpud: ", class_="hidden"), word, id="state-title"),
        el("p", inline((model.Prose(state.why), state.ahead)), class_="why"),
        since,
        id="state-line",
        role="status",
        aria_live="polite",
        aria_atomic="true",
    )
    evidence = None if alerts is None else _alerts(alerts, state)
    rest = el("div", _todo(state), evidence, _age(source), id="state-rest")
    class_ = f"wide state {state.state}"
    return el("section", line, rest, id="state", class_=class_, aria_labelledby="state-title")


def _todo(state: Headline) -> Html | None:
    """Write what to do; a fix names the command where there is one."""
    parts: list[Child] = []
    if state.fix:
        label = el("strong", "Hint: " if state.state == "ok" else "To do: ")
        parts.append(joined(label, inline(model.Advice(state.fix))))
    if state.about:
        parts.append(inline(model.Link(state.about, "what this means")))
    if state.more:
        parts.append(f"{state.more} more below")
    return el("p", *(el("span", part) for part in parts), class_="todo") if parts else None


def _alerts(alerts: model.Section, state: Headline) -> Html:
    """Fold each alert; of the one that the state line is about only what that does not say."""
    folded: list[Child] = []
    for block in alerts.blocks:
        if not isinstance(block, model.Card):
            folded.append(html.blocks([block]))
            continue
        title, inside = inline(block.title), block.blocks
        if block.title == model.Prose(state.why):
            title, spoken = text("Evidence"), model.to_do(state.fix)
            inside = [each for each in inside if each not in spoken]
        name = block.name
        folded.append(html.fold(name, joined(icon(block.state or "degraded"), " ", title), inside))
    return el("div", *folded, id="alerts")


def _age(source: model.Input) -> Html:
    """Write how old the newest data is, and which figures are too old to stand for now."""
    document = source.document
    moments = [document.telemetry.taken_s, *(run.last_success_s for run in document.probes)]
    moments += [document.root.written_s] if document.root else []
    at_s = max((moment_s for moment_s in moments if moment_s is not None), default=None)
    if at_s is None:
        return el("p", "Nothing has been measured yet.", class_="quiet")
    newest = el("p", "Newest data: ", moment(at_s, ago=True), class_="quiet")
    old = sorted({f"{r.probe} ({place(r.gpu)})" for r in source.probes if r.old})
    if not old:
        return newest
    words = "Too old to stand for now: ", ", ".join(old)
    return joined(newest, el("p", icon("degraded"), " ", *words, class_="old"))


def _controls(source: model.Input) -> Html:
    """Write what a script takes up: which time is shown, in which zone, and how to take it away."""
    suggested = suggested_range(source.document)
    ranges = [
        el(
            "label",
            el("input", type="radio", name="range", value=name, checked=name == "24h"),
            el("span", name),
        )
        for name in RANGES_S
    ]
    actions = (("csv", "CSV"), ("png", "PNG"))
    return el(
        "form",
        el("fieldset", el("legend", "Range", class_="hidden"), *ranges, id="range"),
        *(el("button", words, type="button", id=name) for name, words in actions),
        el("button", "Show the whole range", type="button", id="reset", hidden=True),
        el("span", id="zone"),
        id="view",
        data_suggested=suggested,
        hidden=True,
    )


def _foot(source: model.Input, config: str) -> Html:
    document = source.document
    platform = ", ".join(
        f"{key} {value}" for key, value in sorted(document.platform.items()) if value
    )
    facts = [
        model.Pair("gpud", document.version),
        model.Pair("running since", model.Timestamp(document.started_s)),
        model.Pair("machine", model.Prose(platform) if platform else None),
        model.Pair("settings", model.code(config) if config else None),
        model.Pair("in a terminal", (model.code("gpud status"), ", ", model.code("gpud doctor"))),
    ]
    links = el("ul", *(el("li", inline(model.Link(to, words))) for to, words in LINKS))
    return el("footer", links, html.blocks([model.Pairs(facts)]))
