"""Latency and throughput: a figure for each family of modes, its latest values beside their usual.

A chart is drawn into ``.plot`` by a script; without one the table says what there is to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, mark, moment, verdict
from gpud.core.stats import human
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import called, name_of
from gpud.show.units import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.serve.page.view import View
    from gpud.show.document import Probe, Sample

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
        if state.probe != CROSSOVER:
            groups.setdefault(state.gpu, []).extend(_probe(view, state))
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
    store = view.document.store
    if store is None:
        return None
    first_s = store.first_s if store.runs else view.document.started_s
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


def _order(state: Probe) -> tuple[bool, int, int, str]:
    at = ORDER.index(state.probe) if state.probe in ORDER else len(ORDER)
    return (state.gpu is None, state.gpu or 0, at, state.probe)


def _title(view: View, gpu: int | None) -> str:
    if gpu is None:
        return "CPU"
    known = view.document.gpus.get(view.uuid(gpu))
    return f"GPU {gpu}: {known.name[:120] if known else ''}"


def _probe(view: View, state: Probe) -> Iterator[Html]:
    """Yield a figure for each family of modes: those of one magnitude."""
    name = TITLES.get(state.probe, state.probe[:80])
    if not state.samples:
        yield _figure(view, state, name, "", ())
        return
    families = {"": name, **{part: f"{name} {words}" for part, words in APART}}
    for family, title in families.items():
        samples = [one for one in state.samples if _family(one) == family]
        if samples:
            yield _figure(view, state, title, family, samples)


def _family(sample: Sample) -> str:
    return next((part for part, _ in APART if part in sample.mode.split("_")), "")


def _figure(view: View, state: Probe, title: str, family: str, samples: Sequence[Sample]) -> Html:
    where = place(state.gpu)
    probe = "".join(one if one.isascii() and one.isalnum() else "_" for one in state.probe[:40])
    name = "-".join(["history", parts.slug(where), probe, *[family] * bool(family)])
    on = None if state.gpu is None else el("span", f" on {where}")  # those of the CPU say it
    return parts.chart(
        name,
        joined(el("strong", title), on),
        _latest(view, state, title, name, samples),
        kind="history" if samples else None,
        data_probe=state.probe,
        data_modes=" ".join(one.mode for one in samples),
        data_words="|".join(called(state.probe, one.mode) for one in samples),
        data_gpu=view.uuid(state.gpu),
        data_unit=samples[0].unit if samples else None,
    )


def _latest(
    view: View, state: Probe, title: str, name: str, samples: Sequence[Sample]
) -> Iterator[Html]:
    """Draw the last run's values; a run that brought none says why."""
    yield parts.table(
        f"{name}-values",
        f"{title}: the last run",
        HEADINGS,
        [_row(view, state, one) for one in samples],
        figures=(1, 2, 4, 5),
        hidden_caption=True,
    )
    if (failure := state.failure) is not None:
        yield el(
            "p",
            mark("failed", "the last run failed: "),
            text(failure.detail or failure.reason, 600),
            joined("; ", parts.advice(failure.advice)) if failure.advice else None,
        )
    if state.last_success_s is not None:
        old = None if view.is_fresh(state) else mark("degraded", "too old to stand for now, ")
        flags = ", ".join(FLAGS.get(flag, flag) for flag in state.flags)
        marked = joined("; kept apart: ", mark("degraded", flags)) if flags else None
        last = moment(state.last_success_s)
        yield el("p", old, "last good run ", last, marked, class_="quiet")
    for one in state.missing:
        why = text(one.detail, 400)
        yield el("p", f"not on offer: {one.mode[:80]}: ", why, class_="quiet")


def _row(view: View, state: Probe, sample: Sample) -> tuple[Child, ...]:
    stream = view.document.stream(state, sample.mode)
    usual = None if stream is None else stream.usual
    return (
        parts.figure_name(called(state.probe, sample.mode), name_of(state.probe, sample.mode)),
        parts.figure(sample),
        UNKNOWN if usual is None else human(usual, sample.unit),
        verdict(stream, sample),
        human(sample.p90, sample.unit),
        f"{sample.n:,}",
    )
