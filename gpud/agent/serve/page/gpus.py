"""A card for each GPU: what it is, how it is right now, and how fast it is beside its usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import GIB, UNKNOWN, code, mark, moment, spaced, verdict
from gpud.core.telemetry import NAMES
from gpud.show import gpu_table
from gpud.show.gpu_table import MHZ, Readings
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import WORDS
from gpud.show.skipwords import GPU_WORK_BEGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.agent.serve.page.view import View

NAME: Final = 120
FIGURES: Final = (
    ("launch", "submit"),
    ("launch", "roundtrip"),
    ("copy", "host_to_device"),
    ("copy", "device_to_host"),
    ("triad", "triad"),
    ("matmul", "matmul"),
    ("tensor", "tensor"),
    ("nbody", "nbody"),
)
"""Probes and modes whose medians stand on the card; all of them stand below."""


def section(view: View) -> Html:
    """Draw the cards, those of GPUs that are gone included; or say why there is none."""
    document = view.document
    cards = [_card(view, number, uuid) for number, uuid in view.gpus]
    shown = {uuid for _, uuid in view.gpus}
    gone = [
        _gone(view, uuid, one)
        for uuid, one in document["expected"].items()
        if one["gone_s"] is not None and uuid not in shown
    ]
    missing = gpu_table.missing(document)
    return parts.section(
        "gpus",
        "GPUs",
        el("p", text(gpu_table.versions(document)), class_="quiet") if cards else None,
        _begins(view),
        el("div", cards, gone, class_="cards") if cards or gone else _none(view),
        el("p", "Without a value: ", text(missing), class_="quiet") if missing else None,
    )


def _begins(view: View) -> Html | None:
    """Write when GPU work begins; None if it has begun."""
    from_s = view.document.get("gpu_from_s")
    if from_s is None or from_s <= view.now_s:
        return None
    before, _, after = GPU_WORK_BEGINS.partition("{moment}")
    return el("p", before, moment(from_s, "at"), after)


def _none(view: View) -> Html:
    """Say why there is no GPU here; that may be a matter of course, or of a driver."""
    health = view.document["health"]
    for name in ("devices", "cuda", "nvml"):
        one = health.get(name)
        if one and (one["detail"] or one["reason"]):
            why = one["detail"] or spaced(one["reason"])
            return joined(el("p", "No GPU: ", parts.sentence(why)), parts.todo(one["fix"]))
    return el("p", "No GPU is known yet.", class_="quiet")


def _gone(view: View, uuid: str, one: Mapping[str, Any]) -> Html:
    known = view.document["gpus"].get(uuid)
    number = f"GPU {known['number']}: " if known else "GPU: "
    return el(
        "article",
        el("h3", number, text(one["name"] or "without a name", NAME)),
        el("p", mark("failed", "gone"), " since ", moment(one["gone_s"], "at")),
        el("p", code(uuid), class_="quiet"),
        class_="card failed",
    )


def _untold(view: View) -> Html:
    """Say why nothing but its name is known of a GPU: the words of the best source that failed."""
    for name, one in view.document["telemetry"]["sources"].items():
        if one["reason"]:
            why = one["detail"] or spaced(one["reason"])
            return el("p", "No telemetry: ", NAMES.get(name, name), ": ", text(why, 400))
    return el("p", "No source has told of it yet.", class_="quiet")


def _missed(view: View, uuid: str) -> Html:
    """Say of a GPU that others still see that CUDA does not."""
    gone_s = (view.document["expected"].get(uuid) or {}).get("gone_s")
    if gone_s is None:
        return Html("")
    return el("p", mark("failed", "CUDA does not offer it"), " since ", moment(gone_s, "at"))


def _card(view: View, number: int, uuid: str) -> Html:
    said = view.readings.get(number, {})
    device: Mapping[str, Any] = next(
        (
            one
            for one in (view.document.get("cuda") or {}).get("devices", ())
            if one["uuid"] == uuid
        ),
        {},
    )
    name = _text(said, "name") or device.get("name") or "without a name"
    label = f"gpu-{number}"
    return el(
        "article",
        el("h3", f"GPU {number}: ", text(name, NAME), id=label),
        el("p", code(uuid), class_="quiet uuid"),
        _missed(view, uuid),
        el("div", _meters(said), class_="meters"),
        parts.facts(_state(said)) if said else _untold(view),
        _figures(view, number),
        parts.details(f"{label}-more", "more", parts.facts(_more(said, device))),
        class_="card",
        aria_labelledby=label,
    )


def _meters(said: Readings) -> Iterator[Html]:
    """Draw what is a part of a whole; the words say it without the bar."""
    used, total = _number(said, "memory_used_bytes"), _number(said, "memory_total_bytes")
    if total:
        words = f"{_shown(used, GIB, 1)} of {total / GIB:.1f} GiB"
        yield _meter("memory", words, used, total)
    use = _number(said, "utilization_gpu_ratio")
    if use is not None:
        yield _meter("use", f"{100 * use:.0f} %", use, 1.0)
    power, limit = _number(said, "power_watts"), _number(said, "power_limit_watts")
    if power is not None:
        words = f"{power:.0f} W" if not limit else f"{power:.0f} of {limit:.0f} W"
        yield _meter("power", words, power if limit else None, limit or 1.0)


def _meter(name: str, words: str, value: float | None, most: float) -> Html:
    bar = (
        None
        if value is None
        else el(
            "meter",
            words,
            value=f"{min(value, most):.6g}",
            max=f"{most:.6g}",
            aria_label=f"{name}: {words}",
        )
    )
    return el("div", el("span", name, class_="quiet"), el("span", words), bar, class_="meter")


def _state(said: Readings) -> Iterator[tuple[str, Child]]:
    heat, stop = _number(said, "temperature_celsius"), _number(said, "temperature_slowdown_celsius")
    yield (
        "temperature",
        UNKNOWN
        if heat is None
        else f"{heat:.0f} °C" + ("" if stop is None else f" (slows at {stop:.0f} °C)"),
    )
    sm, memory = _number(said, "clock_sm_hertz"), _number(said, "clock_memory_hertz")
    yield "SM clock", _of(sm, _number(said, "clock_sm_max_hertz"))
    yield "memory clock", _of(memory, _number(said, "clock_memory_max_hertz"))
    pstate = _number(said, "pstate")
    yield "performance state", UNKNOWN if pstate is None else f"P{pstate:.0f}"
    yield "slowed by", _throttle(_text(said, "throttle_reasons"))


def _throttle(said: str | None) -> Child:
    if said is None:
        return UNKNOWN
    if said == "none":
        return "nothing"
    words = ", ".join(spaced(word) for word in said.split(","))
    idle = set(said.split(",")) <= {"idle", "set_clocks", "sync_boost", "display_clocks"}
    return text(words) if idle else mark("degraded", words)


def _of(clock: float | None, most: float | None) -> str:
    if clock is None:
        return UNKNOWN
    return (
        f"{clock / MHZ:.0f} MHz" if most is None else f"{clock / MHZ:.0f} of {most / MHZ:.0f} MHz"
    )


def _figures(view: View, number: int) -> Html:
    """Give the medians people ask about, each with how it stands to its usual."""
    known = {state["probe"]: state for state in view.probes if state["gpu"] == number}
    rows: list[tuple[Child, ...]] = []
    for probe, mode in FIGURES:
        state = known.get(probe)
        sample = next(
            (one for one in (state or {}).get("samples", ()) if one["mode"] == mode), None
        )
        if state is None or sample is None:
            continue
        old = None if view.is_fresh(state) else mark("degraded", "old")
        shown = parts.figure(sample)
        rows.append(
            (
                WORDS[probe, mode],
                joined(shown, " ", old) if old else shown,
                verdict(view.stream(number, probe, mode), sample),
            )
        )
    return parts.table(
        f"gpu-{number}-figures",
        f"How fast GPU {number} is",
        ("figure", "now", "verdict"),
        rows,
        figures=(1,),
        hidden_caption=True,
    )


def _more(said: Readings, device: Mapping[str, Any]) -> Iterator[tuple[str, Child]]:
    """What it is, and everything else that is known."""
    yield (
        "compute capability",
        _text(said, "compute_capability") or device.get("compute_capability", UNKNOWN),
    )
    if device:
        yield "multiprocessors", str(device["sm_count"])
        yield "L2 cache", parts.size(device["l2_bytes"])
        if device.get("mig"):
            yield "MIG instance", device["mig"]
        if device.get("mps"):
            yield "MPS", "contexts go through it"
    yield "PCI address", _text(said, "pci_bus_id") or device.get("pci_bus_id") or UNKNOWN
    generation, width = _number(said, "pcie_generation"), _number(said, "pcie_width")
    if generation is not None and width is not None:
        yield "PCIe link", f"generation {generation:.0f}, {width:.0f} lanes"
    fan = _number(said, "fan_ratio")
    if fan is not None:
        yield "fan", f"{100 * fan:.0f} %"
    count = _number(said, "processes")
    if count is not None:
        yield "processes on it", f"{count:.0f}"
    xids = _text(said, "xids")
    if xids is not None:
        yield "Xid errors", "none" if xids == "none" else mark("failed", xids)
    sources = dict.fromkeys(
        NAMES.get(str(one["source"]), str(one["source"]))
        for one in said.values()
        if one.get("value") is not None
    )
    yield "values from", ", ".join(sources) or UNKNOWN
    absent = [
        f"{spaced(field)}: {gpu_table.REASONS.get(one['absent'], spaced(str(one['absent'])))}"
        + (f" ({one['detail'][:200]})" if one.get("detail") else "")
        for field, one in said.items()
        if one.get("value") is None and one.get("absent") != "not_asked"
    ]
    if absent:
        yield "without a value", el("ul", *(el("li", text(one, 400)) for one in absent[:60]))


def _number(said: Readings, field: str) -> float | None:
    value = said.get(field, {}).get("value")
    return float(value) if isinstance(value, int | float) else None


def _shown(value: float | None, unit: float, digits: int) -> str:
    return UNKNOWN if value is None else f"{value / unit:.{digits}f}"


def _text(said: Readings, field: str) -> str | None:
    value = said.get(field, {}).get("value")
    return value if isinstance(value, str) and value else None
