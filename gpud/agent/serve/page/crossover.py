"""From which size on the GPU beats the CPU, copies included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import moment
from gpud.core.stats import human
from gpud.show.markup import Child, Html, el, joined, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.agent.serve.page.view import View

PROBE: Final = "crossover"


def section(view: View) -> Html:
    """Draw the curve of each GPU; a run that found none says why."""
    shown = [_of(view, state) for state in view.probes if state["probe"] == PROBE]
    return parts.section(
        "crossover",
        "Where the GPU begins to win",
        el("div", *shown, class_="charts") if shown else None,
        class_="pair",
        live=False,
    )


def _of(view: View, state: Mapping[str, Any]) -> Html:
    gpu = state["gpu"]
    name = f"crossover-{view.place(gpu).replace(' ', '').lower()}"
    title = f"Matrix product, {view.place(gpu)} beside the CPU"
    return el(
        "figure",
        el("figcaption", el("strong", title), id=f"{name}-title"),
        el("div", class_="plot") if state["curve"] else None,
        el(
            "div",
            _said(state),
            _table(name, title, state),
            id=f"{name}-latest",
            data_live=True,
        ),
        class_="chart",
        id=name,
        data_chart="crossover" if state["curve"] else None,
        data_gpu=view.uuid(gpu),
        data_unit="seconds",
        aria_labelledby=f"{name}-title",
    )


def _said(state: Mapping[str, Any]) -> Html:
    failure = state["failure"]
    last_s = state["last_success_s"]
    when = joined(", ", moment(last_s)) if last_s is not None else None
    if failure is not None:
        return el("p", text(failure["detail"] or failure["reason"], 600), when)
    found = next((one for one in state["samples"]), None)
    if found is None:
        return el("p", "No size has been found.")
    side = human(found["median"], "elements")
    return el("p", "From ", el("strong", side), " on the GPU is faster, copies included", when)


def _table(name: str, title: str, state: Mapping[str, Any]) -> Html:
    rows: list[tuple[Child, ...]] = [
        (
            f"{one['n']} x {one['n']}",
            human(one["cpu_s"], "seconds"),
            human(one["gpu_s"], "seconds"),
            _winner(one),
        )
        for one in state["curve"]
    ]
    return parts.table(
        f"{name}-curve",
        title,
        ("size", "CPU", "GPU", "faster"),
        rows,
        figures=(0, 1, 2),
        hidden_caption=True,
    )


def _winner(one: Mapping[str, Any]) -> str:
    cpu_s, gpu_s = one["cpu_s"], one["gpu_s"]
    if not (cpu_s > 0 and gpu_s > 0):
        return ""
    who, ratio = ("GPU", cpu_s / gpu_s) if gpu_s < cpu_s else ("CPU", gpu_s / cpu_s)
    return f"{who}, {ratio:.1f} times"
