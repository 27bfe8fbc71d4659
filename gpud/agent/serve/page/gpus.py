"""GPU cards: what each is, how it is right now, and how fast it is beside its usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.page import parts
from gpud.agent.serve.page.parts import UNKNOWN, code, mark, moment, verdict
from gpud.core.telemetry import NAMES
from gpud.show import gpu_table
from gpud.show.document import Device, Expected
from gpud.show.gpu_table import Readings
from gpud.show.markup import Child, Html, el, joined, text
from gpud.show.probewords import WORDS
from gpud.show.skipwords import GPU_WORK_BEGINS
from gpud.show.units import GIB, MHZ, size, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        _gone(view, uuid, one, one.gone_s)
        for uuid, one in document.expected.items()
        if one.gone_s is not None and uuid not in shown
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
    from_s = view.document.gpu_from_s
    if from_s is None or from_s <= view.now_s:
        return None
    before, _, after = GPU_WORK_BEGINS.partition("{moment}")
    return el("p", before, moment(from_s, "at"), after)


def _none(view: View) -> Html:
    """Say why there is no GPU here; that may be a matter of course, or of a driver."""
    health = view.document.health
    for one in (health[name] for name in ("devices", "cuda", "nvml") if name in health):
        if one.why:
            return joined(el("p", "No GPU: ", parts.sentence(one.why)), parts.todo(one.fix))
    return el("p", "No GPU is known yet.", class_="quiet")


def _gone(view: View, uuid: str, one: Expected, gone_s: float) -> Html:
    known = view.document.gpus.get(uuid)
    number = f"GPU {known.number}: " if known else "GPU: "
    return el(
        "article",
        el("h3", number, text(one.name or "without a name", NAME)),
        el("p", mark("failed", "gone"), " since ", moment(gone_s, "at")),
        el("p", code(uuid), class_="quiet"),
        class_="card failed",
    )


def _card(view: View, number: int, uuid: str) -> Html:
    said = view.readings.get(number, Readings())
    device = view.document.devices.get(uuid)
    name = said.text("name") or (device and device.name) or "without a name"
    label = f"gpu-{number}"
    gone_s = view.document.expected.get(uuid, Expected()).gone_s
    return el(
        "article",
        el("h3", f"GPU {number}: ", text(name, NAME), id=label),
        el("p", code(uuid), class_="quiet uuid"),
        None  # others still see it
        if gone_s is None
        else el("p", mark("failed", "CUDA does not offer it"), " since ", moment(gone_s, "at")),
        el("div", _meters(said), class_="meters"),
        parts.facts(_state(said)) if said else _untold(view),
        _figures(view, number),
        parts.details(f"{label}-more", "more", parts.facts(_more(said, device))),
        class_="card",
        aria_labelledby=label,
    )


def _untold(view: View) -> Html:
    """Say why nothing but its name is known of a GPU: the words of the best source that failed."""
    for name, one in view.document.telemetry.sources.items():
        if one.reason:
            return el("p", "No telemetry: ", NAMES.get(name, name), ": ", text(one.why, 400))
    return el("p", "No source has told of it yet.", class_="quiet")


def _meters(said: Readings) -> Iterator[Html]:
    """Draw what is a part of a whole; the words say it without the bar."""
    used, total = said.number("memory_used_bytes", GIB), said.number("memory_total_bytes", GIB)
    if total:
        shown = UNKNOWN if used is None else f"{used:.1f}"
        yield _meter("memory", f"{shown} of {total:.1f} GiB", used, total)
    use = said.number("utilization_gpu_ratio")
    if use is not None:
        yield _meter("use", f"{100 * use:.0f} %", use, 1.0)
    power, limit = said.number("power_watts"), said.number("power_limit_watts")
    if power is not None:
        words = f"{power:.0f} of {limit:.0f} W" if limit else f"{power:.0f} W"
        yield _meter("power", words, power if limit else None, limit or 1.0)


def _meter(name: str, words: str, value: float | None, most: float) -> Html:
    bar = None
    if value is not None:
        shown, full = f"{min(value, most):.6g}", f"{most:.6g}"
        bar = el("meter", words, value=shown, max=full, aria_label=f"{name}: {words}")
    return el("div", el("span", name, class_="quiet"), el("span", words), bar, class_="meter")


def _state(said: Readings) -> Iterator[tuple[str, Child]]:
    heat, stop = said.number("temperature_celsius"), said.number("temperature_slowdown_celsius")
    slows = "" if stop is None else f" (slows at {stop:.0f} °C)"
    yield "temperature", UNKNOWN if heat is None else f"{heat:.0f} °C{slows}"
    yield "SM clock", _clock(said, "clock_sm")
    yield "memory clock", _clock(said, "clock_memory")
    pstate = said.number("pstate")
    yield "performance state", UNKNOWN if pstate is None else f"P{pstate:.0f}"
    yield "slowed by", _throttle(said.text("throttle_reasons"))


def _throttle(said: str | None) -> Child:
    if said is None:
        return UNKNOWN
    if said == "none":
        return "nothing"
    words = ", ".join(spaced(word) for word in said.split(","))
    idle = set(said.split(",")) <= {"idle", "set_clocks", "sync_boost", "display_clocks"}
    return text(words) if idle else mark("degraded", words)


def _clock(said: Readings, field: str) -> str:
    clock, most = said.number(f"{field}_hertz", MHZ), said.number(f"{field}_max_hertz", MHZ)
    if clock is None:
        return UNKNOWN
    return f"{clock:.0f} MHz" if most is None else f"{clock:.0f} of {most:.0f} MHz"


def _figures(view: View, number: int) -> Html:
    """Give the medians people ask about, each with how it stands to its usual."""
    known = {
        (state.probe, sample.mode): (state, sample)
        for state in view.probes
        if state.gpu == number
        for sample in state.samples
    }
    rows: list[tuple[Child, ...]] = []
    for named in FIGURES:
        if named in known:
            state, sample = known[named]
            old = None if view.is_fresh(state) else joined(" ", mark("degraded", "old"))
            judged = verdict(view.document.stream(state, sample.mode), sample)
            rows.append((WORDS[named], joined(parts.figure(sample), old), judged))
    return parts.table(
        f"gpu-{number}-figures",
        f"How fast GPU {number} is",
        ("figure", "now", "verdict"),
        rows,
        figures=(1,),
        hidden_caption=True,
    )


def _more(said: Readings, device: Device | None) -> Iterator[tuple[str, Child]]:
    """What it is, and everything else that is known."""
    listed = device or Device(compute_capability=UNKNOWN)
    yield "compute capability", said.text("compute_capability") or listed.compute_capability
    if device:
        yield "multiprocessors", str(device.sm_count)
        yield "L2 cache", size(device.l2_bytes)
    if listed.mig:
        yield "MIG instance", listed.mig
    if listed.mps:
        yield "MPS", "contexts go through it"
    yield "PCI address", said.text("pci_bus_id") or listed.pci_bus_id or UNKNOWN
    generation, width = said.number("pcie_generation"), said.number("pcie_width")
    if generation is not None and width is not None:
        yield "PCIe link", f"generation {generation:.0f}, {width:.0f} lanes"
    fan = said.number("fan_ratio", 0.01)
    if fan is not None:
        yield "fan", f"{fan:.0f} %"
    count = said.number("processes")
    if count is not None:
        yield "processes on it", f"{count:.0f}"
    xids = said.text("xids")
    if xids is not None:
        yield "Xid errors", "none" if xids == "none" else mark("failed", xids)
    sources = {
        NAMES.get(one.source, one.source): 1 for one in said.values() if one.value is not None
    }
    yield "values from", ", ".join(sources) or UNKNOWN
    absent = [
        f"{spaced(field)}: {gpu_table.REASONS.get(str(one.absent), spaced(str(one.absent)))}"
        + (f" ({one.detail[:200]})" if one.detail else "")
        for field, one in said.items()
        if one.value is None and one.absent != "not_asked"
    ]
    if absent:
        yield "without a value", el("ul", *(el("li", text(one, 400)) for one in absent[:60]))
