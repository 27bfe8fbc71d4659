"""Screen of `gpud status`, and the list of sections that it shares with the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.show import figures, gpus, known_faults, machine, model
from gpud.show.headline import SLOWER, alerts, headline, unacknowledged
from gpud.show.text import section_lines
from gpud.show.view import BAD, GOOD, HEAD, UNSURE, Span, line, narrowed
from gpud.units import lasted, moment, plural
from gpud.words import next_on_battery, unmeasured

if TYPE_CHECKING:
    from gpud.document.status import Status
    from gpud.show.view import Line, View

STYLES: Final = (GOOD, UNSURE, BAD)
STALE_FROM_S: Final = 10.0
"""From when on it is said how old the document is: a living agent writes it every 6 s."""


def sections(source: model.Input) -> list[model.Section]:
    """Make every section that has something to show, in the order of page and screen.

    Health comes first where a part is not well, for it has the reason; so do known faults that were
    seen.
    """
    health, is_well = machine.health(source), source.document.state == "ok"
    faults, any_seen = known_faults.section(source), known_faults.seen(source.document)
    made = (
        alerts(source),
        *((faults,) if any_seen else ()),
        *(() if is_well else (health,)),
        figures.section(source),
        gpus.section(source),
        machine.docker(source),
        machine.changes(source),
        *(() if source.brief else (figures.drivers(source),)),
        machine.skips(source),
        *((health,) if is_well else ()),
        *(() if any_seen else (faults,)),
        machine.cost(source),
    )
    return [section for section in made if section.blocks]


def screen(document: Status, now_s: float, view: View) -> list[Line]:
    """Draw the document: what is wrong first, the GPUs, the figures, what else.

    All of it is drawn where that fits the height; else each probe's first mode, and no blank lines.
    Units: ``now_s`` is Unix time. Whatever a driver or a file says in it is made harmless.
    """
    whole = title(document, now_s)
    for section in sections(model.Input(document)):
        drawn = section_lines(section, view)
        whole += [line(), *drawn] if drawn else []
    whole = narrowed(whole, view)
    if view.height is None or len(whole) < view.height:
        return whole
    brief = title(document, now_s)
    for section in sections(model.Input(document, brief=True)):
        brief += section_lines(section, view)
    return narrowed(brief, view)


def title(document: Status, now_s: float) -> list[Line]:
    """Write the state, since when, how old the document is if it is stale, and what to do first."""
    summary = headline(document)
    level = max((part.level for part in document.health.values()), default=0)
    count = len(unacknowledged(document))
    word = "slower" if summary.word == SLOWER else document.state
    at_s = summary.since_s
    since = "" if at_s is None else f" since {moment(at_s)} ({lasted(now_s - at_s)})"
    age_s = now_s - document.written_s
    old = f", data {lasted(age_s)} old" if age_s >= STALE_FROM_S else ""
    words = f"{word}, {plural(count, 'alert')}" if count else word
    state = Span(words, STYLES[max(level, count > 0)])
    shown = [line(Span(f"gpud {document.version}: ", HEAD), state, since, Span(old, BAD))]
    if summary.fix and summary.state != "ok":
        shown.append(line(Span("  do first: ", HEAD), summary.fix))
    if note := unmeasured(document):
        shown.append(line(Span("  note: ", HEAD), f"{note}{next_on_battery(document)}"))
    return shown
