"""The table of GPUs: rows of cells made of the status document, for terminal and page.

A cell whose value is not known is ``-``, never 0; why it is not is one line below the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.telemetry import NAMES
from gpud.core.text import escaped
from gpud.show.document import Reading, Source
from gpud.show.units import AGE_FROM_S, GIB, MHZ, spaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.show.document import Change, Status

UNKNOWN: Final = "-"
NOT_KNOWN: Final = "not known"
HEADINGS: Final = (
    *("GPU", "name", "temp", "power", "memory", "use", "SM/mem clock", "state"),
    "slowed by",
)
SOURCES: Final = {
    **NAMES,
    "nothing": "nowhere",
    "dxg": "nowhere",  # it tells of no GPU
    "cuda": "CUDA only",
}
"""How the levels of telemetry are called."""
TOGETHER_S: Final = 120.0
"""Changes within so long of the first are one: each source tells its own at its own time."""
UNSAID: Final = "unsaid"
"""Beside the reasons of ``Absent``: not even the name of the field came up."""
REASONS: Final = {
    "unsupported": "not supported here",
    "not_permitted": "not permitted",
    "failed": "failed",
    "stale": "too old",
    "sentinel": "no value given",
    UNSAID: "no source tells",
}
"""``Absent`` in words, in the order in which they are told."""
IN_CELLS: Final = (
    *("temperature_celsius", "power_watts", "power_limit_watts", "memory_used_bytes"),
    *("memory_total_bytes", "utilization_gpu_ratio", "clock_sm_hertz", "clock_memory_hertz"),
    *("pstate", "throttle_reasons"),
)
"""Fields without which a cell, or a part of it, is empty."""
GROUPS: Final = {
    "ecc_": "ECC",
    "remapped_rows_": "remapped rows",
    "mig_": "MIG",
    "xid": "Xid",
    "pcie_received_": "PCIe throughput",
    "pcie_sent_": "PCIe throughput",
    "pcie_": "PCIe",
}
"""Fields that are told together, by how their names begin."""
UNITS: Final = (
    *("_seconds_total", "_joules_total", "_bytes_per_second", "_total"),
    *("_bytes", "_ratio", "_celsius", "_watts", "_hertz"),
)
ACRONYMS: Final = frozenset({"bios", "gpu", "id", "pci", "sm", "uuid", "vbios"})
CHANGED: Final = {
    "driver_version": "driver",
    "driver_folder": "driver folder",
    "cuda_version": "CUDA",
    "nvml_version": "NVML",
    "wsl_version": "WSL",
    "kernel": "kernel",
    "windows_build": "Windows",
    "gpus": "GPUs",
}


class Readings(dict[str, Reading]):
    """The readings of one GPU, or of the machine, by field."""

    def number(self, field: str, unit: float = 1.0) -> float | None:
        """Return a value in ``unit``; None if it is not known."""
        value = self[field].value if field in self else None
        return value / unit if isinstance(value, int | float) else None

    def text(self, field: str) -> str | None:
        """Return a text as its source wrote it; None if it is not known."""
        value = self[field].value if field in self else None
        return value if isinstance(value, str) and value else None


def by_gpu(document: Status) -> dict[int | None, Readings]:
    """Sort the readings of a status document by GPU; None stands for the machine."""
    found: dict[int | None, Readings] = {None: Readings()}
    for reading in document.telemetry.readings:
        found.setdefault(reading.gpu, Readings())[reading.field] = reading
    return found


def rows(document: Status) -> list[tuple[str, ...]]:
    """Give one row of ``HEADINGS`` for each GPU that CUDA lists or telemetry knows."""
    readings = by_gpu(document)
    names = {
        document.gpus[uuid].number: device.name
        for uuid, device in document.devices.items()
        if uuid in document.gpus
    }
    numbers = {number for number in readings if number is not None} | names.keys()
    return [
        _row(number, readings.get(number, Readings()), names.get(number))
        for number in sorted(numbers)
    ]


def versions(document: Status) -> str:
    """Give driver and CUDA in words, the side of WSL apart where its number is another."""
    machine = by_gpu(document)[None]
    driver, nvml = machine.text("driver_version"), machine.text("nvml_version")
    cuda = machine.text("cuda_version") or (document.cuda and document.cuda.cuda_version)
    words = f"driver {driver or NOT_KNOWN}"
    if driver and nvml and nvml != driver and document.platform.get("wsl"):
        words += f" (WSL side {nvml})"
    return f"{words}, CUDA {cuda or NOT_KNOWN}"


def source(document: Status, now_s: float) -> str:
    """Say where the values come from: "NVML", "nvidia-smi.exe, 40 s ago"."""
    level = document.telemetry.level
    words = SOURCES.get(level, UNKNOWN)  # an agent of an older release does not say
    taken_s = document.telemetry.sources.get(level, Source()).taken_s
    age_s = 0.0 if taken_s is None else now_s - taken_s
    return f"{words}, {age_s:.0f} s ago" if age_s >= AGE_FROM_S else words


def missing(document: Status) -> str:
    """Say in one line which values there are not, by reason; empty when there are all."""
    readings = by_gpu(document)
    gpus = [number for number in readings if number is not None]
    told: dict[str, dict[str, list[int]]] = {}
    for number in gpus:
        unsaid = {field: Reading(field, absent=UNSAID) for field in IN_CELLS}
        for field, reading in (unsaid | readings[number]).items():
            if reading.value is None and reading.absent != "not_asked":  # the person's choice
                whose = told.setdefault(str(reading.absent), {}).setdefault(_word(field), [])
                whose += [number] * (number not in whose)
    return "; ".join(
        f"{REASONS.get(reason, reason)}: {', '.join(_whose(told[reason], gpus))}"
        for reason in (*REASONS, *sorted(told.keys() - REASONS.keys()))
        if reason in told
    )


def changes(document: Status) -> list[tuple[float, list[str]]]:
    """Give when something changed and all that did, in words; the newest last.

    A driver that is replaced is a change of five facts, told as one. First sights are none.
    """
    told: list[tuple[float, list[str]]] = []
    for change in document.changes:
        if change.old is None:
            continue
        if not told or not 0 <= change.at_s - told[-1][0] <= TOGETHER_S:
            told.append((change.at_s, []))
        told[-1][1].append(_changed(change))
    return told


def _row(number: int, said: Readings, name: str | None) -> tuple[str, ...]:
    throttle = said.text("throttle_reasons")
    sm, clock = said.number("clock_sm_hertz", MHZ), said.number("clock_memory_hertz", MHZ)
    pstate = said.number("pstate")
    cells = (
        str(number),
        said.text("name") or name or UNKNOWN,
        _with(said.number("temperature_celsius"), "°C"),
        _part(said.number("power_watts"), said.number("power_limit_watts"), "W", 0),
        _part(
            said.number("memory_used_bytes", GIB), said.number("memory_total_bytes", GIB), "GiB", 1
        ),
        _with(said.number("utilization_gpu_ratio", 0.01), "%"),
        UNKNOWN if sm is None and clock is None else f"{_whole(sm)}/{_whole(clock)} MHz",
        UNKNOWN if pstate is None else f"P{pstate:.0f}",
        UNKNOWN if throttle is None else "nothing" if throttle == "none" else throttle,
    )
    return tuple(map(escaped, cells))


def _with(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f} {unit}"


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _part(part: float | None, whole: float | None, unit: str, digits: int) -> str:
    """Write a part of a whole: "38/115 W", "-/115 W", "38 W" or "-"."""
    if part is None and whole is None:
        return UNKNOWN
    shown = UNKNOWN if part is None else f"{part:.{digits}f}"
    return f"{shown} {unit}" if whole is None else f"{shown}/{whole:.{digits}f} {unit}"


def _word(field: str) -> str:
    for start, word in GROUPS.items():
        if field.startswith(start):
            return word
    unit = next((unit for unit in UNITS if field.endswith(unit)), "")
    words = field.removesuffix(unit).split("_")
    return " ".join(word.upper() if word in ACRONYMS else word for word in words)


def _whose(told: Mapping[str, list[int]], gpus: list[int]) -> Iterator[str]:
    """Name the fields; where not every GPU lacks one, those that do."""
    for word in sorted(told, key=str.lower):
        some = ", ".join(map(str, sorted(told[word]))) if len(told[word]) < len(gpus) else ""
        yield f"{word} (GPU {some})" if some else word


def _changed(change: Change) -> str:
    kind, old, new = change.kind, str(change.old), str(change.new)
    if kind == "boot_id":
        return "the machine was started anew"
    if kind == "gpus":
        count = [sum(1 for uuid in one.split(",") if uuid) for one in (old, new)]
        return f"GPUs {count[0]} -> {count[1]}" if count[0] != count[1] else "another GPU"
    return f"{CHANGED.get(kind, spaced(kind))} {old} -> {new}"
