"""Sections that are plain tables: health, telemetry, sinks, skipped runs, changes, own cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, advice, link, mark, moment, sentence
from gpud.core.stats import human
from gpud.core.telemetry import LEVELS, NAMES, SEES_A_GPU
from gpud.show import gpu_table
from gpud.show.markup import Html, el, joined, text
from gpud.show.skipwords import because
from gpud.show.units import duration, place, size, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.serve.page.view import View
    from gpud.show.markup import Child

STATES: Final = ("ok", "degraded", "failed")
"""Levels of health as signs and words."""
DETAIL: Final = 1200
SHORT: Final = 400
"""Characters of a detail in a narrow column."""
MOST_CHANGES: Final = 50
LEAST_PERCENT: Final = 0.01
AT_LENGTH: Final = {
    **NAMES,
    "nvidia_smi_exe": "nvidia-smi.exe of Windows",
    "nvidia_smi": "nvidia-smi of Linux",
    "dxg": "/dev/dxg and PCI",
}
SEE: Final = frozenset(LEVELS[SEES_A_GPU:])


def health(view: View) -> Html:
    """Draw a row for each component, those that are not well first; fixes that are alike once."""
    rows = []
    told: dict[str, str] = {}
    components = view.document.health.items()
    for name, one in sorted(components, key=lambda item: (-item[1].level, item[0])):
        fix: Child = advice(one.fix) if one.fix else None
        if one.fix and told.setdefault(one.fix, name) != name:
            fix = joined("as for ", told[one.fix])
        reason = el("span", one.why, class_="quiet") if one.reason else None
        why = sentence(one.detail, DETAIL) if one.detail else reason
        state = STATES[one.level]
        since = None if one.since_s is None else moment(one.since_s, "at")
        rows.append((name, mark(state, state), why, fix, since))
    headings = ("component", "state", "because", "what to do", "since")
    return parts.section(
        "health",
        "Health",
        parts.table("health", "Every component", headings, rows, hidden_caption=True)
        or el("p", "No component has spoken yet.", class_="quiet"),
        class_="wide",
    )


def telemetry(view: View) -> Html:
    """Draw the sources, the best first; what is merged from them stands on the cards."""
    said = view.document.telemetry
    rows = [
        (
            AT_LENGTH.get(name, name),
            mark("ok", "answers") if one.up else mark("degraded", spaced(one.reason or "stale")),
            moment(one.last_success_s) if one.last_success_s is not None else "never",
            UNKNOWN if one.duration_s is None else human(one.duration_s, "seconds"),
            str(sum(one.failures.values())),
            joined(
                text(one.detail, SHORT) if one.detail else None,
                joined("; ", advice(one.fix)) if one.fix else None,
            ),
        )
        for name, one in said.sources.items()
    ]
    level = gpu_table.SOURCES.get(said.level, UNKNOWN)
    best = ("Values come from ", el("strong", level), ", the best source that answers.")
    return parts.section(
        "telemetry",
        "Telemetry",
        el("p", *best) if said.level in SEE else el("p", "No source tells of a GPU."),
        parts.table(
            "telemetry",
            "Sources, the best first",
            ("source", "state", "last answer", "took", "failures", "because"),
            rows,
            figures=(3, 4),
            hidden_caption=True,
        )
        or el("p", "No source has been asked yet.", class_="quiet"),
    )


def sinks(view: View) -> Html:
    """Draw a row for each sink; nothing before the first has told anything."""
    rows = []
    for name, one in sorted(view.document.sinks.items()):
        why: list[Child] = [text(one.detail, SHORT)] if one.detail else []
        why += [joined("; ", advice(one.fix))] if one.fix else []
        rows.append(
            (
                name,
                mark("degraded", spaced(one.reason))
                if one.reason is not None
                else mark("ok", "ok"),
                str(one.sent),
                str(one.failed),
                moment(one.last_success_s) if one.last_success_s is not None else UNKNOWN,
                why if one.reason is not None else None,
            )
        )
    headings = ("sink", "state", "sent", "failed", "last", "because")
    caption = "Alert sinks, since gpud started"
    return parts.section(
        "sinks",
        "Who is told",
        parts.table("sinks", caption, headings, rows, figures=(2, 3), hidden_caption=True),
    )


def skips(view: View) -> Html:
    """Draw what is being left out now, and how often each reason has held since the start."""
    rows = [
        (
            one.probe,
            place(one.gpu) if one.gpu is not None else "",
            because(one.reason, one.utilization_gpu_ratio),
            mark("degraded", str(one.count)) if one.starving else str(one.count),
        )
        for one in sorted(view.document.put_off, key=lambda one: (one.gpu or 0, one.probe))
    ]
    headings = ("probe", "on", "because", "in a row")
    now = parts.table("skips", "Left out now", headings, rows, figures=(3,), hidden_caption=True)
    counts = [
        (probe, because(reason), str(count))
        for (probe, _, reason), count in sorted(
            (name.partition(":"), count) for name, count in view.document.counters.skips.items()
        )
    ]
    since = parts.table(
        "skipped",
        "Since gpud started",
        ("probe", "because", "times"),
        counts,
        figures=(2,),
        hidden_caption=True,
    )
    return parts.section(
        "skips",
        "Left out",
        now or el("p", "Every run that is due is made.", class_="quiet"),
        parts.details("skips-all", "since gpud started", since) if counts else None,
    )


def changes(view: View) -> Html:
    """Draw the latest changes, the newest first; the history has all of them."""
    rows = [
        (moment(at_s, "at"), text(", ".join(words), SHORT))
        for at_s, words in reversed(gpu_table.changes(view.document)[-MOST_CHANGES:])
    ]
    return parts.section(
        "events",
        "Changes",
        parts.table("events", "What changed", ("when", "what"), rows, hidden_caption=True)
        or el("p", "Nothing has changed since gpud knows this machine.", class_="quiet"),
        el("p", link("/api/v1/events", "all events"), class_="quiet"),
    )


def cost(view: View) -> Html:
    """Draw gpud's own cost since the agent started."""
    return parts.section("cost", "What gpud takes", parts.facts(_cost(view)))


def _cost(view: View) -> Iterator[tuple[str, Child]]:
    document, counters, own = view.document, view.document.counters, view.own
    running_s = max(view.now_s - document.started_s - counters.paused_s, 0.0)
    yield "memory (RSS)", _size(own.rss_bytes)
    yield "CPU time", _share(own.cpu_s, running_s, "of one core")
    yield "GPU time", _share(counters.gpu_seconds, running_s, "of one GPU")
    yield "GPU memory, the most of one run", _size(counters.vram_peak_bytes)
    yield "page-locked memory, the most of one run", _size(counters.pinned_peak_bytes)
    yield "processes started", f"{counters.children:,}"
    runs, failed = sum(counters.runs.values()), sum(counters.failures.values())
    yield "runs", f"{runs:,}, {failed:,} failed"
    if (store := document.store) is None:
        yield "history", UNKNOWN
    else:
        lost = f", {store.waiting} waiting" if store.waiting else ""
        lost += f", {store.dropped} lost" if store.dropped else ""
        yield "history", f"{size(store.n_bytes)}, {store.runs:,} runs{lost}"
    if counters.paused_s:
        yield "the machine slept", duration(counters.paused_s)
    if counters.clock_jumps:
        yield "clock jumps", str(counters.clock_jumps)


def _size(n_bytes: int | None) -> str:
    return UNKNOWN if n_bytes is None else size(n_bytes)


def _share(took_s: float | None, running_s: float, of: str) -> str:
    """Write a time and what share of the running time it is: "12.0 s, 0.08 % of one core"."""
    if took_s is None:
        return UNKNOWN
    if not running_s:
        return duration(took_s)
    percent = 100 * took_s / running_s
    share = f"{percent:.2g}" if percent >= LEAST_PERCENT else f"less than {LEAST_PERCENT:g}"
    return f"{duration(took_s)}, {share} % {of}"
