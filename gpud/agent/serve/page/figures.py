"""Latency and throughput: a figure for each family of modes, its latest values beside their usual.

A chart is drawn into ``.plot`` by a script; without one the table says what there is to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, mark, moment, verdict
from gpud.core.stats import human
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import called, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpud.agent.serve.page.view import View

TITLES: Final = {
    "launch": "Launch latency",
    "event": "Events",
    "small_copy": "Small copies",
    "copy": "Copies over the bus",
    "device_copy": "Copies within GPU memory",
    "triad": "GPU memory bandwidth",
    "matmul": "Matrix product",
    "tensor": "Tensor cores",
    "nbody": "Arithmetic (n-body)",
    "container_nbody": "N-body in a container",
    "cpu_call": "Foreign call on the CPU",
    "cpu_matmul": "Matrix product on the CPU",
}
APART: Final = (("cold", "after idling"), ("first", "for the first time"))
"""Modes of one probe that no axis can share with the others, by what is in their names."""
ORDER: Final = tuple(TITLES)
CROSSOVER: Final = "crossover"
HEADINGS: Final = ("what", "now", "usual", "verdict", "p90", "samples")
FLAGS: Final = {
    "busy": "GPU in use",
    "low": "slow clocks",
    "resume": "just resumed",
    "cold": "not warmed up",
    "jumped": "clock jumped",
}


def section(view: View) -> Html:
    """Draw the figures of each GPU, then the CPU's."""
    groups: dict[int | None, list[Html]] = {}
    for state in sorted(view.probes, key=_order):
        if state["probe"] != CROSSOVER:
            groups.setdefault(state["gpu"], []).extend(_probe(view, state))
    several = len([gpu for gpu in groups if gpu is not None]) > 1
    return parts.section(
        "figures",
        "Latency and throughput",
        _controls(),
        [
            joined(
                el("h3", _title(view, gpu)) if several or gpu is None else None,
                el("div", *shown, class_="charts"),
            )
            for gpu, shown in groups.items()
        ]
        or el("p", "No probe has run yet.", class_="quiet"),
        class_="wide",
        live=False,
        data_first_s=_first_s(view),
    )


def _first_s(view: View) -> str | None:
    """Give when the first run was, for the charts to begin there; before it, when gpud started."""
    store = view.document.get("store") or {}
    first_s = view.document["started_s"] if store.get("runs") == 0 else store.get("first_s")
    return None if first_s is None else f"{first_s:.0f}"


def _controls() -> Html:
    """What a script takes up: which time is shown, and in which zone."""
    ranges = [
        el(
            "label",
            el("input", type="radio", name="range", value=one, checked=one == "24h"),
            el("span", one),
        )
        for one in ("1h", "6h", "24h", "7d", "30d", "90d", "1y")
    ]
    return el(
        "form",
        el("fieldset", el("legend", "Range"), *ranges, id="range"),
        el(
            "label",
            el("input", type="checkbox", id="utc", role="switch"),
            el("span", "UTC"),
            class_="switch",
        ),
        id="view",
        hidden=True,
    )


def _order(state: Mapping[str, Any]) -> tuple[Any, ...]:
    probe = state["probe"]
    place = ORDER.index(probe) if probe in ORDER else len(ORDER)
    return (state["gpu"] is None, state["gpu"] or 0, place, probe)


def _title(view: View, gpu: int | None) -> str:
    if gpu is None:
        return "CPU"
    known = view.document["gpus"].get(view.uuid(gpu)) or {}
    return f"GPU {gpu}: {known.get('name', '')[:120]}"


def _probe(view: View, state: Mapping[str, Any]) -> Iterator[Html]:
    """Yield a figure for each family of modes: those of one magnitude."""
    name = TITLES.get(state["probe"], state["probe"][:80])
    samples = state["samples"]
    if not samples:
        yield _figure(view, state, name, "", ())
        return
    apart = {part: [one for one in samples if _is(part, one)] for part, _ in APART}
    usual = [one for one in samples if not any(_is(part, one) for part, _ in APART)]
    if usual:
        yield _figure(view, state, name, "", usual)
    for part, words in APART:
        if apart[part]:
            yield _figure(view, state, f"{name} {words}", part, apart[part])


def _is(part: str, sample: Mapping[str, Any]) -> bool:
    return part in sample["mode"].split("_")


def _figure(
    view: View,
    state: Mapping[str, Any],
    title: str,
    part: str,
    samples: Sequence[Mapping[str, Any]],
) -> Html:
    gpu, probe = state["gpu"], state["probe"]
    where = view.place(gpu)
    name = "-".join(["history", where.replace(" ", "").lower(), _slug(probe), *[part] * bool(part)])
    unit = samples[0]["unit"] if samples else None
    return el(
        "figure",
        el(
            "figcaption",
            el("strong", title),
            None if gpu is None else el("span", f" on {where}"),  # those of the CPU say it
            id=f"{name}-title",
        ),
        el("div", class_="plot") if samples else None,
        el("div", _latest(view, state, title, name, samples), id=f"{name}-latest", data_live=True),
        class_="chart",
        id=name,
        data_chart="history" if samples else None,
        data_probe=probe,
        data_modes=" ".join(one["mode"] for one in samples),
        data_words="|".join(called(probe, one["mode"]) for one in samples),
        data_gpu=view.uuid(gpu),
        data_unit=unit,
        aria_labelledby=f"{name}-title",
    )


def _slug(name: str) -> str:
    return "".join(one if one.isascii() and one.isalnum() else "_" for one in name[:40])


def _latest(
    view: View,
    state: Mapping[str, Any],
    title: str,
    name: str,
    samples: Sequence[Mapping[str, Any]],
) -> Html:
    """Draw the last run's values; a run that brought none says why."""
    rows = [_row(view, state, one) for one in samples]
    shown = parts.table(
        f"{name}-values",
        f"{title}: the last run",
        HEADINGS,
        rows,
        figures=(1, 2, 4, 5),
        hidden_caption=True,
    )
    said: list[Child] = [shown]
    failure = state["failure"]
    if failure is not None:
        said.append(_failure(failure))
    last_s = state["last_success_s"]
    if last_s is not None:
        old = None if view.is_fresh(state) else mark("degraded", "too old to stand for now, ")
        flags = ", ".join(FLAGS.get(flag, flag) for flag in state["flags"])
        marked = joined("; kept apart: ", mark("degraded", flags)) if flags else None
        said.append(el("p", old, "last good run ", moment(last_s), marked, class_="quiet"))
    said += [
        el("p", f"not on offer: {one['mode'][:80]}: ", text(one["detail"], 400), class_="quiet")
        for one in state["missing"]
    ]
    return joined(said)


def _failure(failure: Mapping[str, Any]) -> Html:
    advice = failure.get("advice")
    return el(
        "p",
        mark("failed", "the last run failed: "),
        text(failure["detail"] or failure["reason"], 600),
        joined("; ", parts.advice(advice)) if advice else None,
    )


def _row(view: View, state: Mapping[str, Any], sample: Mapping[str, Any]) -> tuple[Child, ...]:
    probe, mode, unit = state["probe"], sample["mode"], sample["unit"]
    stream = view.stream(state["gpu"], probe, mode)
    usual = None if stream is None else stream["usual"]
    return (
        parts.figure_name(called(probe, mode), name_of(probe, mode)),
        parts.figure(sample),
        UNKNOWN if usual is None else human(usual, unit),
        verdict(stream, sample),
        human(sample["p90"], unit),
        f"{sample['n']:,}",
    )
