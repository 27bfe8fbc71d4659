"""Curves of the last run: the spread of launches, and the size from which the GPU is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import moment
from gpud.core.stats import LATENCY_BOUNDS_S, human
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import WORDS
from gpud.show.units import place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.serve.page.view import View
    from gpud.core.sample import Buckets, Point
    from gpud.show.document import Probe

CROSSOVER: Final = "crossover"
LAUNCH: Final = "launch"
DRAWN: Final = ("submit", "roundtrip")
"""Modes whose distribution is drawn; the table has the quantiles of all modes."""
HEADINGS: Final = ("mode", "least", "p10", "median", "p90", "p99", "most", "samples")


def crossover(view: View) -> Html:
    """Draw the curve of each GPU; a run that found none says why."""
    shown = [_crossover(view, state) for state in view.probes if state.probe == CROSSOVER]
    charts = el("div", *shown, class_="charts") if shown else None
    title = "Where the GPU begins to win"
    return parts.section("crossover", title, charts, class_="pair", live=False)


def distribution(view: View) -> Html:
    """Draw the distributions of each GPU's last launches: the tail is what people feel."""
    shown = [one for state in view.probes if state.probe == LAUNCH for one in _spread(view, state)]
    title = "Distribution of the last run"
    return parts.section("distribution", title, shown, class_="pair", live=False)


def _crossover(view: View, state: Probe) -> Html:
    where = place(state.gpu)
    name = f"crossover-{parts.slug(where)}"
    title = f"Matrix product, {where} beside the CPU"
    latest = joined(_result(state), _curve(name, title, state.curve))
    return parts.chart(
        name,
        el("strong", title),
        latest,
        kind="crossover" if state.curve else None,
        data_gpu=view.uuid(state.gpu),
        data_unit="seconds",
    )


def _result(state: Probe) -> Html:
    failure = state.failure
    last_s = state.last_success_s
    when = joined(", ", moment(last_s)) if last_s is not None else None
    if failure is not None:
        return el("p", text(failure.detail or failure.reason, 600), when)
    found = next((one for one in state.samples), None)
    if found is None:
        return el("p", "No size has been found.")
    side = human(found.median, "elements")
    return el("p", "From ", el("strong", side), " on the GPU is faster, copies included", when)


def _curve(name: str, title: str, curve: tuple[Point, ...]) -> Html:
    rows = [
        (f"{one.n} x {one.n}", human(one.cpu_s, "seconds"), human(one.gpu_s, "seconds"), _win(one))
        for one in curve
    ]
    headings = ("size", "CPU", "GPU", "faster")
    return parts.table(
        f"{name}-curve", title, headings, rows, figures=(0, 1, 2), hidden_caption=True
    )


def _win(one: Point) -> str:
    cpu_s, gpu_s = one.cpu_s, one.gpu_s
    if not (cpu_s > 0 and gpu_s > 0):
        return ""
    who, ratio = ("GPU", cpu_s / gpu_s) if gpu_s < cpu_s else ("CPU", gpu_s / cpu_s)
    return f"{who}, {ratio:.1f} times"


def _spread(view: View, state: Probe) -> Iterator[Html]:
    if not state.samples:
        return
    name = f"spread-{parts.slug(place(state.gpu))}"
    modes = [one.mode for one in state.samples if one.mode in DRAWN]
    yield el("div", *(_figure(view, state.gpu, name, mode) for mode in modes), class_="charts")
    yield el("div", _quantiles(state, name), id=f"{name}-quantiles", data_live=True)


def _figure(view: View, gpu: int | None, name: str, mode: str) -> Html:
    buckets = view.buckets.get((gpu, LAUNCH, mode))
    if buckets is None:
        return Html("")
    own = f"{name}-{mode}"
    title = f"{WORDS.get((LAUNCH, mode), mode)} on {place(gpu)}"
    return parts.chart(
        own,
        el("strong", title),
        parts.details(f"{own}-counts", "counts", _counts(own, title, buckets)),
        kind="distribution",
        data_probe=LAUNCH,
        data_mode=mode,
        data_gpu=view.uuid(gpu),
        data_unit="seconds",
    )


def _quantiles(state: Probe, name: str) -> Html:
    rows: list[tuple[Child, ...]] = [
        (
            WORDS.get((LAUNCH, one.mode), one.mode[:80]),
            *(human(getattr(one, each), one.unit) for each in ("minimum", "p10")),
            parts.figure(one),
            *(human(getattr(one, each), one.unit) for each in ("p90", "p99", "maximum")),
            f"{one.n:,}",
        )
        for one in state.samples
    ]
    caption = f"Launches on {place(state.gpu)}, the last run"
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
