"""How the latencies of the last run are spread: the tail is what people feel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.page import parts
from gpud.core.stats import LATENCY_BOUNDS_S, human
from gpud.show.markup import Child, Html, el
from gpud.show.probewords import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.serve.page.view import View
    from gpud.core.sample import Buckets

DRAWN: Final = ("submit", "roundtrip")
"""Modes whose distribution is drawn; of all modes the table tells the quantiles."""
PROBE: Final = "launch"
HEADINGS: Final = ("mode", "least", "p10", "median", "p90", "p99", "most", "samples")


def section(view: View) -> Html:
    """Draw the distributions of each GPU's last launches."""
    shown = [one for state in view.probes if state["probe"] == PROBE for one in _of(view, state)]
    return parts.section(
        "distribution",
        "Distribution of the last run",
        shown,
        class_="pair",
        live=False,
    )


def _of(view: View, state: Mapping[str, Any]) -> Iterator[Html]:
    if not state["samples"]:
        return
    name = f"spread-{view.place(state['gpu']).replace(' ', '').lower()}"
    modes = [one["mode"] for one in state["samples"] if one["mode"] in DRAWN]
    yield el("div", *(_figure(view, state["gpu"], name, mode) for mode in modes), class_="charts")
    yield el("div", _quantiles(view, state, name), id=f"{name}-quantiles", data_live=True)


def _figure(view: View, gpu: int | None, name: str, mode: str) -> Html:
    buckets = view.buckets.get((gpu, PROBE, mode))
    if buckets is None:
        return Html("")
    own = f"{name}-{mode}"
    title = f"{WORDS.get((PROBE, mode), mode)} on {view.place(gpu)}"
    counts = parts.details(f"{own}-counts", "counts", _counts(own, title, buckets))
    return el(
        "figure",
        el("figcaption", el("strong", title), id=f"{own}-title"),
        el("div", class_="plot"),
        el("div", counts, id=f"{own}-latest", data_live=True),
        class_="chart",
        id=own,
        data_chart="distribution",
        data_probe=PROBE,
        data_mode=mode,
        data_gpu=view.uuid(gpu),
        data_unit="seconds",
        aria_labelledby=f"{own}-title",
    )


def _quantiles(view: View, state: Mapping[str, Any], name: str) -> Html:
    rows: list[tuple[Child, ...]] = [
        (
            WORDS.get((PROBE, one["mode"]), one["mode"][:80]),
            *(human(one[each], one["unit"]) for each in ("minimum", "p10")),
            parts.figure(one),
            *(human(one[each], one["unit"]) for each in ("p90", "p99", "maximum")),
            f"{one['n']:,}",
        )
        for one in state["samples"]
    ]
    caption = f"Launches on {view.place(state['gpu'])}, the last run"
    return parts.table(f"{name}-q", caption, HEADINGS, rows, figures=range(1, 8))


def _counts(name: str, title: str, buckets: Buckets) -> Html:
    """List what the chart draws: the buckets that hold anything."""
    total = sum(buckets.counts) or 1
    rows = [
        (
            f"up to {human(LATENCY_BOUNDS_S[place], 'seconds')}"
            if place < len(LATENCY_BOUNDS_S)
            else f"more than {human(LATENCY_BOUNDS_S[-1], 'seconds')}",
            f"{count:,}",
            f"{100 * count / total:.3g} %",
        )
        for place, count in enumerate(buckets.counts)
        if count
    ]
    return parts.table(
        f"{name}-b",
        title,
        ("latency", "launches", "share"),
        rows,
        figures=(1, 2),
        hidden_caption=True,
    )
