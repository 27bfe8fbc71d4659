"""GPU cards: what each GPU is, how it is now, how fast beside its usual, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.telemetry import NAMES
from gpud.document.machine import Expected, ReadingReport, SourceReport
from gpud.show import model
from gpud.show.figures import LOW_CLOCKS
from gpud.show.headline import gpu_work_begins
from gpud.units import AGE_FROM_S, HOUR_S, amount, lasted, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.document.machine import ContextsReport, DeviceReport
    from gpud.document.status import Status

UNKNOWN: Final = "not known"
SOURCES: Final = {
    **NAMES,
    "nothing": "nowhere",
    "dxg": "nowhere",  # it has no value of a GPU
    "cuda": "CUDA only",
}
"""Names of the levels of telemetry."""
NO_SOURCE: Final = "no source"
"""Beside the reasons of ``Absent``: not even the name of the field came up."""
SELDOM_S: Final = 120.0
"""Rounds of the GPU that are further apart are told of: figures may be that old."""
REASONS: Final = {
    "unsupported": "not supported here",
    "not_permitted": "not permitted",
    "failed": "failed",
    "stale": "too old",
    "sentinel": "no value given",
    NO_SOURCE: "no source tells",
}
"""``Absent`` in words."""
CARD: Final = (
    ("memory", "memory_used_bytes", "memory_total_bytes"),
    ("use", "utilization_gpu_ratio", None),
    ("power", "power_watts", "power_limit_watts"),
    ("temperature", "temperature_celsius", None),
    ("SM clock", "clock_sm_hertz", "clock_sm_max_hertz"),
    ("memory clock", "clock_memory_hertz", "clock_memory_max_hertz"),
    ("performance state", "pstate", None),
    ("slowed by", "throttle_reasons", None),
)
"""Facts of a card: the field, and of what it is a part."""
CLOCK: Final = "clock_sm_hertz"
BRIEF: Final = 4
"""Facts that fit one line of a terminal."""
SUFFIXES: Final = (
    *("_seconds_total", "_joules_total", "_bytes_per_second", "_total"),
    *("_bytes", "_ratio", "_celsius", "_watts", "_hertz"),
)
ACRONYMS: Final = frozenset({"bios", "ecc", "gpu", "id", "pci", "sm", "uuid", "vbios"})


class Readings(dict[str, ReadingReport]):
    """The readings of one GPU, or of the machine, by field."""

    def text(self, field: str) -> str | None:
        """Return a text as its source wrote it; None if it is not known."""
        value = self[field].value if field in self else None
        return value if isinstance(value, str) and value else None

    def number(self, field: str | None) -> float | None:
        """Return a number in the unit of its name; None if it is not known."""
        value = self[field].value if field and field in self else None
        return value if isinstance(value, int | float) else None

    def part(self, name: str, field: str, whole_field: str | None) -> model.Pair:
        """Write a number with its unit and of what it is a part: "38 of 115 W"."""
        number, whole = self.number(field), self.number(whole_field)
        if number is None:
            return model.Pair(name, None if whole is None else f"unknown of {amount(whole, field)}")
        if not whole:
            return model.Pair(
                name, amount(number, field), number if field.endswith("_ratio") else None
            )
        words, of_words = amount(number, field), amount(whole, field)
        unit = of_words.rpartition(" ")[2]
        return model.Pair(name, f"{words.removesuffix(f' {unit}')} of {of_words}", number / whole)


def by_gpu(document: Status) -> dict[int | None, Readings]:
    """Sort the readings of a status document by GPU; None stands for the machine."""
    readings: dict[int | None, Readings] = {None: Readings()}
    for reading in document.telemetry.readings:
        readings.setdefault(reading.gpu, Readings())[reading.field] = reading
    return readings


def section(source: model.Input) -> model.Section:
    """Make the cards, those of GPUs that are gone included; or say why there is none."""
    document = source.document
    readings = by_gpu(document)
    present = {
        uuid: gpu.number
        for uuid, gpu in sorted(document.gpus.items(), key=lambda item: item[1].number)
        if uuid in document.devices or gpu.number in readings
    }
    cards = [
        _card(source, number, uuid, readings.get(number, Readings()))
        for uuid, number in present.items()
    ]
    cards += [
        _gone(document, uuid, gpu, gpu.gone_s)
        for uuid, gpu in document.expected.items()
        if gpu.gone_s is not None and uuid not in present
    ]
    blocks: list[model.Block] = []
    if present:
        blocks.append(
            model.Paragraph((versions(document), "; values from ", _source(document)), "quiet")
        )
    blocks += _waiting(document)
    blocks += [model.Group(cards)] if cards else _none(document)
    return model.Section("gpus", "GPUs", blocks)


def _source(document: Status) -> model.Text:
    """Say where the values come from and, if they are old, since when they stand."""
    level = document.telemetry.level
    words = SOURCES.get(level, UNKNOWN)  # an agent of an older release does not say
    taken_s = document.telemetry.sources.get(level, SourceReport()).taken_s
    old = taken_s is not None and document.written_s - taken_s >= AGE_FROM_S
    return (
        (words, ", ", model.Timestamp(taken_s, ago=True)) if taken_s is not None and old else words
    )


def _waiting(document: Status) -> Iterator[model.Paragraph]:
    """Say when GPU work begins, or is tried again after a hang."""
    if words := gpu_work_begins(document):
        yield model.Paragraph(words)
    if document.breaker and document.breaker.retry_s is not None:
        yield model.Paragraph(
            (
                "GPU work is tried again at ",
                model.upcoming(document.breaker.retry_s, document.written_s),
            )
        )
    if pace := _pace(document):
        yield model.Paragraph(pace, "quiet")
    if few := _contexts(document.contexts):
        yield model.Paragraph(few)


def _pace(document: Status) -> model.Text:
    """Say how far apart the GPU's rounds are, if that is seldom, when the last was and the next."""
    ended = [run.last_success_s for run in document.probes if run.gpu is not None]
    last_s = max((at_s for at_s in ended if at_s is not None), default=None)
    contexts = document.contexts
    if last_s is None or contexts is None or contexts.interval_s <= SELDOM_S:
        return ()
    resting = [skip.next_s for skip in document.put_off if skip.next_s is not None]
    next_s = min(resting, default=last_s + contexts.interval_s)
    spent = contexts.budget is not None and contexts.used >= contexts.budget
    last = model.Timestamp(last_s, ago=True, near=document.written_s - last_s < HOUR_S)
    ahead = ", next ", model.Timestamp(next_s, ago=True, near=next_s - document.written_s < HOUR_S)
    comes = next_s > document.written_s and not spent
    return f"Measured every {lasted(contexts.interval_s)}: last ", last, ahead if comes else ""


def _contexts(contexts: ContextsReport | None) -> str | None:
    """Say that the GPU is measured less often, or no more, to save its contexts."""
    if contexts is None or contexts.budget is None or 2 * contexts.used <= contexts.budget:
        return None
    if contexts.used >= contexts.budget:
        return (
            f"The {contexts.budget} GPU contexts of this boot are used up: the GPU is measured by "
            "`gpud probe` alone, until `wsl --shutdown`"
        )
    return (
        f"{contexts.used} of {contexts.budget} GPU contexts of this boot are used: the GPU is "
        f"measured every {lasted(contexts.interval_s)}, so that the rest lasts"
    )


def _none(document: Status) -> list[model.Block]:
    """Say why there is no GPU here; that may be a matter of course, or of a driver."""
    for name in ("devices", "cuda", "nvml"):
        health = document.health.get(name)
        if health and health.why:
            return [
                model.Paragraph(("No GPU: ", model.Prose(health.why))),
                *model.to_do(health.fix),
            ]
    return [model.Paragraph("No GPU is known yet.", "quiet")]


def _gone(document: Status, uuid: str, gpu: Expected, gone_s: float) -> model.Card:
    listed = document.gpus.get(uuid)
    number = f"GPU {listed.number}" if listed else "GPU"
    title = f"{number}: {gpu.name or 'without a name'}"
    since = model.Paragraph((model.Mark("failed", "gone"), " since ", model.Timestamp(gone_s)))
    return model.Card(
        "", title, [since, model.Paragraph(model.code(uuid), "quiet")], state="failed"
    )


def _card(source: model.Input, number: int, uuid: str, readings: Readings) -> model.Card:
    document = source.document
    device = document.devices.get(uuid)
    name = readings.text("name") or (device and device.name) or "without a name"
    label = f"gpu-{number}"
    blocks: list[model.Block] = [model.Detail([model.Paragraph(model.code(uuid), "quiet")])]
    gone_s = document.expected.get(uuid, Expected()).gone_s
    if gone_s is not None:  # telemetry still has it
        blocks.append(
            model.Paragraph(
                (model.Mark("failed", "CUDA does not offer it"), " since ", model.Timestamp(gone_s))
            )
        )
    clock = _kernel_clock(source, number) if _lacks_clock(readings) else None
    if readings:
        facts = [fact(readings, *fields) for fields in CARD]
        if clock:
            facts = [clock if fact.name == clock.name else fact for fact in facts]
        in_brief = [*facts[:BRIEF], *([clock] if clock else ())]
        blocks.append(model.Pairs(in_brief if source.brief else facts))
        if (absent := missing(readings)) and not source.brief:
            blocks.append(model.Paragraph(f"Without a value: {absent}", "quiet"))
    else:
        blocks += [_silent(document), *([model.Pairs([clock])] if clock else ())]
    blocks.append(model.Fold(f"{label}-more", "more", [model.Pairs(list(_more(readings, device)))]))
    return model.Card(label, f"GPU {number}: {name}", blocks)


def _lacks_clock(readings: Readings) -> bool:
    return CLOCK not in readings or readings[CLOCK].value is None


def _kernel_clock(source: model.Input, number: int) -> model.Pair | None:
    """Give the SM clock that the newest fresh run of a large kernel has read itself."""
    clocks = [
        (run.last_success_s, run.probe, clock)
        for run in source.probes
        if run.gpu == number
        and run.last_success_s is not None
        and not run.old
        and isinstance(clock := run.conditions.get("sm_clock_hertz"), int | float)
    ]
    if not clocks:
        return None
    _, probe, clock = max(clocks)
    return model.Pair("SM clock", f"{amount(clock, CLOCK)} (read by {probe})")


def fact(readings: Readings, name: str, field: str, whole_field: str | None) -> model.Pair:
    """Write one fact of a card."""
    if field != "throttle_reasons":
        return readings.part(name, field, whole_field)
    reasons = readings.text(field)
    if reasons is None or reasons == "none":
        return model.Pair(name, None if reasons is None else "nothing")
    names = reasons.split(",")
    words = ", ".join(spaced(name) for name in names)
    idle = LOW_CLOCKS.issuperset(names)
    return model.Pair(name, f"nothing ({words})" if idle else model.Mark("degraded", words))


def _silent(document: Status) -> model.Paragraph:
    """Say why only the name of a GPU is known: the words of the best source that failed."""
    for name, answer in document.telemetry.sources.items():
        if answer.reason:
            failed = f"No telemetry: {NAMES.get(name, name)}: "
            return model.Paragraph((failed, model.Prose(answer.why)))
    return model.Paragraph("No source has a value of it yet.", "quiet")


def _more(readings: Readings, device: DeviceReport | None) -> Iterator[model.Pair]:
    """Give what CUDA says of it, and every other field with its value or why there is none."""
    if device:
        yield model.Pair("compute capability", device.compute_capability or None)
        yield model.Pair("MIG instance", device.mig)
        yield model.Pair("MPS", "contexts go through it" if device.mps else None)
    drawn = {"name", "uuid", *(part for _, *fields in CARD for part in fields)}
    drawn |= {"compute_capability"} if device else set()
    for field, reading in readings.items():
        value = reading.value
        if value is None:
            why = REASONS.get(str(reading.absent), spaced(str(reading.absent)))
            detail = f" ({reading.detail})" if reading.detail else ""
            yield model.Pair(_word(field), model.Prose(f"{why}{detail}"))
        elif field not in drawn:
            failed = field == "xids" and value != "none"
            words = value if isinstance(value, str) else amount(value, field)
            yield model.Pair(_word(field), model.Mark("failed", words) if failed else words)


def versions(document: Status) -> str:
    """Give driver and CUDA in words, the side of WSL apart where its number is another."""
    machine = by_gpu(document)[None]
    driver, nvml = machine.text("driver_version"), machine.text("nvml_version")
    cuda = machine.text("cuda_version") or (document.cuda and document.cuda.cuda_version)
    words = f"driver {driver or UNKNOWN}"
    if driver and nvml and nvml != driver and document.platform.get("wsl"):
        words += f" (WSL side {nvml})"
    return f"{words}, CUDA {cuda or UNKNOWN}"


def missing(readings: Readings) -> str:
    """Name the facts of a card that are missing, by reason; empty where there are all."""
    lacks: dict[str, list[str]] = {}
    for name, field, _ in CARD:
        reading = readings.get(field, ReadingReport(field=field, absent=NO_SOURCE))
        if reading.value is None and reading.absent != "not_asked":  # the person's choice
            lacks.setdefault(str(reading.absent), []).append(name)
    whys = {reason: REASONS.get(reason, spaced(reason)) for reason in lacks}
    return "; ".join(f"{whys[reason]}: {', '.join(names)}" for reason, names in lacks.items())


def _word(field: str) -> str:
    suffix = next((suffix for suffix in SUFFIXES if field.endswith(suffix)), "")
    words = field.removesuffix(suffix).split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)
