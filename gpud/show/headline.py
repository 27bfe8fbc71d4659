"""State in one word, since when, why, what to do; and the alerts. Page and screen begin with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.alerts import DRIVER_REGRESSION, RUNBOOKS, SHORT, SLOWDOWN, UNWELL
from gpud.core.health import Health, Level
from gpud.core.stats import compared, human
from gpud.show import model
from gpud.show.view import ASCII
from gpud.units import plural, spaced, span
from gpud.words import GPU_WORK_BEGINS, called, cause_words, name_of, unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.core.alerts import Evidence
    from gpud.document.alerts import AlertReport
    from gpud.document.status import Status

WORDS: Final[dict[model.State, str]] = {
    "ok": "Fine",
    "degraded": "Degraded",
    "failed": "Failed",
    "starting": "Starting",
}
SLOWER: Final = "Slower"
"""Every part works, and work takes longer than it did."""
NEW_S: Final = 300.0
"""For so long after its start an agent without a single run is starting; then nothing is due."""
COMPONENTS: Final = {
    "root": "gpud's supervisor",
    "agent": "gpud itself",
    "gpu": "GPU work",
    "devices": "",  # its words name the GPUs
    "cuda": "CUDA",
    "dxg": "the GPU's channel to Windows",
    "dockerd": "Docker",
    "containers": "GPU containers",
    "nvml": "NVML",
    "probes": "the probes",
    "store": "the history",
    "http": "the page's listener",
    "discovery": "a probe's module",
    "alerts": "telling people",
    "gate": "measuring",
    "settings": "the settings",
    "status_file": "gpud status",
}
"""Names for people. Of several that are equally bad the first is named: others follow from it."""
LOOK: Final = "gpud doctor"
"""What to do about something that says of no fix."""
MOST, MOST_BRIEF = 20, 3
"""Alerts that are drawn; more are counted."""
SHORTEST: Final = 60
"""Columns of ``short``."""
HARMFUL: Final = re.compile(r"[^A-Za-z0-9 .,:;%()/+_~-]")
"""What a shell's prompt or a status bar could take for more than a letter."""
SEVERITIES: Final[dict[str, model.State]] = {"critical": "failed", "info": "starting"}


class Headline(NamedTuple):
    """The state and what there is to say of it. Texts may quote foreign strings.

    ``brief`` names the worst in a few words. ``about`` is the path of a page that says more,
    ``more`` counts other things that are not well. ``ahead``: what has not begun yet.
    Units: ``since_s`` is Unix time, None if not known.
    """

    state: model.State
    word: str
    since_s: float | None
    why: str
    brief: str = "ok"
    fix: str | None = None
    about: str | None = None
    more: int = 0
    ahead: model.Text = None


def headline(document: Status) -> Headline:
    """Sum a status document up.

    A component that fails comes before an alert, and that before one that is degraded; what a
    person has acknowledged is no news.
    """
    health = document.health
    order = tuple(COMPONENTS)
    unwell = sorted(
        (name for name, component in health.items() if component.level > Level.OK),
        key=lambda name: (
            -health[name].level,
            order.index(name) if name in order else len(order),
            name,
        ),
    )
    failed = [name for name in unwell if health[name].level >= Level.FAILED]
    if failed:
        return _of_component("failed", health, failed, len(unwell) - 1)
    alerts = [alert for alert in unacknowledged(document) if alert.name != UNWELL]
    if alerts:
        return _of_alert(document, alerts, len(unwell))
    if unwell:
        return _of_component("degraded", health, unwell, len(unwell) - 1)
    if not document.probes and document.written_s - document.started_s < NEW_S:
        why = "the first probes have not ended yet; the first figures come within a minute or two"
        return Headline("starting", WORDS["starting"], document.started_s, why, "starting")
    return _fine(document)


def short(document: Status) -> str:
    """Sum a document up in at most 60 harmless letters of ASCII, the worst first: "gpud ok"."""
    summary, count = headline(document), len(unacknowledged(document))
    brief = summary.brief
    if summary.state == "ok" and count:
        brief = f"ok, {plural(count, 'alert')}"
    words = HARMFUL.sub("?", f"gpud {brief}".translate(ASCII))
    more = f" (+{summary.more})" if summary.more else ""
    room = SHORTEST - len(more)
    return f"{words if len(words) <= room else f'{words[: room - 1]}~'}{more}"


def is_problem(document: Status) -> bool:
    """Return whether something is wrong that nobody has acknowledged."""
    return document.state != "ok" or bool(unacknowledged(document))


def unacknowledged(document: Status) -> list[AlertReport]:
    """Return what fires and nobody has acknowledged, the most severe and then the oldest first."""
    return [alert for alert in firing(document) if alert.acknowledged_s is None]


def firing(document: Status) -> list[AlertReport]:
    """Return what fires: what is not acknowledged first, then the most severe, then the oldest."""
    return sorted(
        (alert for alert in document.alerts if alert.firing),
        key=lambda a: (a.acknowledged_s is not None, a.severity != "critical", a.starts_s),
    )


def _of_component(
    state: model.State, health: Mapping[str, Health], names: Sequence[str], more: int
) -> Headline:
    """Several components often have one cause, and then say the same."""
    since = [at_s for name in names if (at_s := health[name].since_s) is not None]
    first = health[names[0]]
    alike = sum(1 for name in names[1:] if health[name].detail == first.detail)
    name = COMPONENTS.get(names[0], names[0])
    why = first.why or "no reason is known"
    return Headline(
        state,
        WORDS[state],
        min(since, default=None),
        f"{name}: {why}" if name else why,
        f"{names[0]} {spaced(first.reason or state)}",
        first.fix or LOOK,
        f"{RUNBOOKS}/{UNWELL}" if state == "failed" else None,
        max(more - alike, 0),
    )


def _of_alert(document: Status, alerts: Sequence[AlertReport], more: int) -> Headline:
    first = alerts[0]
    worst = max(first.evidence, key=lambda piece: piece.slowdown, default=None)
    brief = first.summary
    if worst is not None:
        stream = worst.stream
        place, name = document.place(stream.gpu), name_of(stream.probe, stream.mode)
        brief = f"{place} {compared(worst.slowdown)}: {name}"
    slower = first.name in {DRIVER_REGRESSION, SLOWDOWN}
    return Headline(
        "degraded",
        SLOWER if slower else WORDS["degraded"],
        min(alert.began_s for alert in alerts),
        first.summary,
        brief,
        first.fix or LOOK,
        first.runbook,
        len(alerts) - 1 + more,
    )


def _fine(document: Status) -> Headline:
    """Nothing is wrong since the last thing was: a component, or an alert that has ended."""
    health = document.health
    moments = [part.since_s for part in health.values()] + [a.ends_s for a in document.alerts]
    skipped = unmeasured(document)
    absent = [health[name] for name in ("devices", "cuda", "nvml") if name in health]
    without = next((part for part in absent if part.reason), None)
    if acknowledged := len(firing(document)):
        many = f"{acknowledged} alerts that you" if acknowledged > 1 else "one alert that you"
        why = f"{many} have acknowledged; {skipped or 'nothing else is wrong'}"
    elif without is not None:
        why = f"everything that is here works; {without.why}"
    elif skipped:
        why = f"{skipped}; everything else that is watched works"
    elif ahead := gpu_work_begins(document):
        why = "everything else that is watched works; "
        return Headline("ok", WORDS["ok"], None, why, ahead=ahead)
    elif document.streams and all(stream.level is None for stream in document.streams):
        why = "everything that is watched works; what is usual here is still being learned"
    else:
        why = "everything that is watched works, and nothing is slower than it was"
    since_s = max((at_s for at_s in moments if at_s), default=None)
    return Headline("ok", WORDS["ok"], since_s, why, fix=without.fix if without else None)


def gpu_work_begins(document: Status) -> model.Text:
    """Say when GPU work begins; None where it has begun."""
    from_s = document.gpu_from_s
    if from_s is None or from_s <= document.written_s:
        return None
    before, _, after = GPU_WORK_BEGINS.partition("{moment}")
    return before, model.upcoming(from_s, document.written_s), after


def alerts(source: model.Input) -> model.Section:
    """Make a card for each alert that fires, with its evidence, likely causes and what to do."""
    firing_now, most = firing(source.document), MOST_BRIEF if source.brief else MOST
    blocks: list[model.Block] = [card(source.document, alert) for alert in firing_now[:most]]
    if (more := len(firing_now) - most) > 0:
        blocks.append(model.Paragraph((f"and {more} more: ", model.code("gpud alerts"))))
    return model.Section("alerts", "Alerts", blocks, wide=True)


def card(document: Status, alert: AlertReport) -> model.Card:
    """Make the card of an alert: how much since when, what to do, the evidence and causes."""
    name = alert.fingerprint[:16]
    state = SEVERITIES.get(alert.severity, "degraded")
    about: list[model.Text] = [
        model.Mark(state, alert.severity),
        ("since ", model.Timestamp(alert.began_s)),
    ]
    if alert.acknowledged_s is not None:
        about.append(("acknowledged ", model.Timestamp(alert.acknowledged_s)))
    if alert.ends_s is not None:
        about.append(("ended ", model.Timestamp(alert.ends_s)))
    if alert.acknowledged_s is None and alert.ends_s is None:
        about.append(("seen it: ", model.code(f"gpud alerts ack {name[:SHORT]}")))
    else:
        state = "starting"
    detail: list[model.Block] = []
    if alert.evidence:
        detail.append(_evidence(document, alert.evidence, name))
    elif alert.description != alert.summary:
        detail.append(model.Paragraph(model.Prose(alert.description), "lines"))
    if alert.causes:
        causes = "; ".join(cause_words(cause) for cause in alert.causes)
        likely = model.Styled("Likely cause, the likeliest first: ", "strong")
        detail.append(model.Paragraph((likely, model.Prose(causes))))
    link = model.Link(str(alert.runbook), "what this means and what to do", document.url or "")
    blocks = [
        model.Paragraph(about, "inline"),
        model.Detail(detail),
        *model.to_do(alert.fix),
        model.Detail([model.Paragraph(link, "quiet")]),
    ]
    return model.Card(f"alert-{name}", model.Prose(alert.summary), blocks, state)


def _name(document: Status, evidence: Evidence) -> model.Text:
    """Name a metric that moved, with the way to its chart where there is one."""
    stream = evidence.stream
    words = called(stream.probe, stream.mode)
    listed = document.gpus.get(stream.gpu or "")
    gpu = listed.number if listed else None
    drawn = ((run.gpu, run.probe, sample.mode) for run in document.probes for sample in run.samples)
    if (stream.gpu is None or listed) and (gpu, stream.probe, stream.mode) in drawn:
        return model.Link(f"#{model.chart_name(gpu, stream.probe, stream.mode)}", words)
    return words


def _evidence(document: Status, evidence: Sequence[Evidence], name: str) -> model.Table:
    """Make one row for each figure that moved."""
    first = ("change", "before", "after")  # these and the name are what a phone shows
    others = ("on", "90 % interval", "runs", "since")
    columns = model.headings("figure", *first, *others, numbers=first, wide=others)
    rows = [
        (
            model.Short(
                (_name(document, e), model.Styled(name_of(e.stream.probe, e.stream.mode), "name")),
                name_of(e.stream.probe, e.stream.mode),
            ),
            model.Styled(compared(e.slowdown), "strong"),
            human(e.before, e.unit, e.stream.mode),
            human(e.after, e.unit, e.stream.mode),
            f"{document.place(e.stream.gpu)}{', on battery' if e.stream.on_battery else ''}",
            span(e.low, e.high),
            f"{e.samples} after {e.reference}",
            model.Timestamp(e.since_s),
        )
        for e in evidence
    ]
    return model.Table(f"evidence-{name}", "Evidence", columns, rows, limit=30)
