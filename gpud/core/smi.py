"""nvidia-smi's own language: what it is asked, and what its answer means.

CSV, because its XML and its tables change with every driver. An answer is read as a whole or
refused as a whole: a line that does not fit says that something is not as believed, and then the
lines that seem to fit are not to be believed either.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.core import throttle, windows
from gpud.core.errors import TelemetryError
from gpud.core.fields import FIELDS, WORDS, plausible, scaled
from gpud.core.sample import Absent, Reading
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_GPUS = 128
QUOTED_CHARACTERS = 120

_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?", re.ASCII)
_BITS = re.compile(r"0x[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)
_PSTATE = re.compile(r"P(\d{1,3})", re.ASCII)
_REFUSED = re.compile(r'Field "([a-z0-9_.]{1,64})" is not a valid field to query')


def _number(factor: float = 1.0) -> Callable[[str], float | Absent]:
    def read(cell: str) -> float | Absent:
        if not _NUMBER.fullmatch(cell):
            raise ValueError("is no number")
        return scaled(float(cell) if "." in cell else int(cell), factor)

    return read


def _bits(cell: str) -> str:
    if not _BITS.fullmatch(cell):
        raise ValueError("is no bit mask")
    return throttle.words(int(cell, 16))


def _pstate(cell: str) -> float:
    found = _PSTATE.fullmatch(cell)
    if found is None:
        raise ValueError("is no performance state")
    return float(found[1])


def _switch(cell: str) -> str:
    if cell.lower() not in {"enabled", "disabled"}:
        raise ValueError("is neither Enabled nor Disabled")
    return cell.lower()


@dataclass(frozen=True, slots=True)
class Column:
    """One name of ``--query-gpu``, the field it gives and how a cell of it is read.

    Errors: ``read`` raises ``ValueError``, in words that follow the cell. ``replaces`` is the
    column whose refusal calls for this one.
    """

    name: str
    field: str
    read: Callable[[str], object] = str
    replaces: str = ""


_MIB = _number(float(1 << 20))
_MHZ = _number(1e6)
_PERCENT = _number(0.01)
_PLAIN = _number()

ALWAYS: Final = (
    Column("driver_version", "driver_version"),
    Column("name", "name"),
    Column("uuid", "uuid"),
    Column("pci.bus_id", "pci_bus_id"),
    Column("vbios_version", "vbios_version"),
    Column("memory.total", "memory_total_bytes", _MIB),
    Column("memory.used", "memory_used_bytes", _MIB),
    Column("memory.free", "memory_free_bytes", _MIB),
    Column("utilization.gpu", "utilization_gpu_ratio", _PERCENT),
    Column("utilization.memory", "utilization_memory_ratio", _PERCENT),
    Column("temperature.gpu", "temperature_celsius", _PLAIN),
    Column("power.draw", "power_watts", _PLAIN),
    Column("enforced.power.limit", "power_limit_watts", _PLAIN),
    Column("clocks.gr", "clock_graphics_hertz", _MHZ),
    Column("clocks.sm", "clock_sm_hertz", _MHZ),
    Column("clocks.mem", "clock_memory_hertz", _MHZ),
    Column("clocks.video", "clock_video_hertz", _MHZ),
    Column("clocks.max.gr", "clock_graphics_max_hertz", _MHZ),
    Column("clocks.max.sm", "clock_sm_max_hertz", _MHZ),
    Column("clocks.max.mem", "clock_memory_max_hertz", _MHZ),
    Column("pstate", "pstate", _pstate),
    Column("clocks_throttle_reasons.active", "throttle_reasons", _bits),
    Column(
        "clocks_event_reasons.active", "throttle_reasons", _bits, "clocks_throttle_reasons.active"
    ),
    Column("pcie.link.gen.current", "pcie_generation", _PLAIN),
    Column("pcie.link.gen.max", "pcie_generation_max", _PLAIN),
    Column("pcie.link.width.current", "pcie_width", _PLAIN),
    Column("pcie.link.width.max", "pcie_width_max", _PLAIN),
    Column("fan.speed", "fan_ratio", _PERCENT),
    Column("ecc.mode.current", "ecc_mode", _switch),
    Column("ecc.errors.corrected.aggregate.total", "ecc_corrected_total", _PLAIN),
    Column("ecc.errors.uncorrected.aggregate.total", "ecc_uncorrected_total", _PLAIN),
)
"""What every driver since 2016 knows. A counter is the one that NVML is asked for: one that starts
over with each boot would fall, and rise again, whenever the other source takes over."""

NEWER: Final = (
    Column("temperature.memory", "temperature_memory_celsius", _PLAIN),
    Column("mig.mode.current", "mig_mode", _switch),
    Column("compute_cap", "compute_capability"),
    Column("memory.reserved", "memory_reserved_bytes", _MIB),
    Column("utilization.encoder", "utilization_encoder_ratio", _PERCENT),
    Column("utilization.decoder", "utilization_decoder_ratio", _PERCENT),
)
"""In the order in which drivers learned them: one that does not know a name knows none behind it,
and since nvidia-smi names only the first, one lost start is enough to find that out."""

COLUMNS: Final = (*ALWAYS, *NEWER)
OFFERED: Final = frozenset(column.field for column in COLUMNS)
"""The fields that nvidia-smi can give at all."""

GUARDS: Final = ("index", "count")
"""Asked first: which GPU a line is of, and how many lines there must be."""


def asked(left_out: frozenset[str] = frozenset()) -> tuple[Column, ...]:
    """Give the columns to ask for, without those that this nvidia-smi does not know."""
    return tuple(
        column
        for column in COLUMNS
        if column.name not in left_out and (not column.replaces or column.replaces in left_out)
    )


def arguments(left_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Give the command line, less the program."""
    names = (*GUARDS, *(column.name for column in asked(left_out)))
    return (f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")


def refused(said: str) -> str | None:
    """Name the column that nvidia-smi says it does not know."""
    found = _REFUSED.search(said)
    return None if found is None else found[1]


def without(left_out: frozenset[str], name: str) -> frozenset[str]:
    """Leave a refused column out from now on, and with a newer one those that came after it."""
    newer = [column.name for column in NEWER]
    return left_out | {name} | set(newer[newer.index(name) :] if name in newer else ())


def read(data: bytes, source: str, left_out: frozenset[str] = frozenset()) -> tuple[Reading, ...]:
    """Read the answer to ``arguments(left_out)``: every column of every GPU, a value or a reason.

    Units: MiB, MHz, percent and watts come in, base units go out. ``driver_version`` is of the
    machine and comes once.
    Errors: ``TelemetryError`` with ``bad_output``, which quotes the line that does not fit, or with
    ``no_device`` where the program says so with exit code 0, as older ones do.
    """
    lines = _lines(windows.text(data), source)
    readings: dict[tuple[int | None, str], Reading] = {}
    for line in lines:
        for found in _row(line, len(lines), source, left_out):
            before = readings.setdefault((found.gpu, found.field), found)
            if before is not found and (found.gpu is not None or before.value != found.value):
                raise _bad(source, f"{found.field} comes twice", line)
    uuids = [found.value for found in readings.values() if found.field == "uuid"]
    if any(uuids.count(uuid) > 1 for uuid in uuids if not isinstance(uuid, Absent)):
        raise _bad(source, "one UUID comes twice", lines[-1])
    return tuple(readings.values())


def _lines(said: str, source: str) -> list[str]:
    if said.startswith("No devices were found"):
        raise TelemetryError(f"{source}: No devices were found", reason="no_device")
    if not said:
        raise _bad(source, "it ended well and said nothing")
    if not said.endswith("\n"):
        raise _bad(source, "the answer breaks off", said.rpartition("\n")[2])
    lines = [line.removesuffix("\r") for line in said[:-1].split("\n")]
    if len(lines) > MOST_GPUS:
        raise _bad(source, f"{len(lines)} lines, more than {MOST_GPUS} GPUs", lines[0])
    return lines


def _row(line: str, count: int, source: str, left_out: frozenset[str]) -> list[Reading]:
    columns = asked(left_out)
    try:
        row = next(csv.reader([line], skipinitialspace=True, strict=True))
    except (csv.Error, StopIteration):
        raise _bad(source, "no line of CSV", line) from None
    cells = [cell.strip() for cell in row]
    wanted = len(GUARDS) + len(columns)
    if len(cells) != wanted or not line.isprintable():
        raise _bad(source, f"{len(cells)} columns instead of {wanted}", line)
    for name, cell in zip(GUARDS, cells, strict=False):
        if not (cell.isascii() and cell.isdigit() and len(cell) <= len(str(MOST_GPUS))):
            raise _bad(source, f"{name} is no number", line)
    if int(cells[1]) != count:
        raise _bad(source, f"{count} lines for {int(cells[1])} GPUs", line)
    gpu = int(cells[0])
    found = [
        _reading(gpu, column, cell, source, line)
        for column, cell in zip(columns, cells[len(GUARDS) :], strict=True)
    ]
    given = {column.field for column in columns}
    unknown = {column.field: column.name for column in COLUMNS if column.field not in given}
    return found + [
        Reading(
            None if FIELDS[field].machine else gpu,
            field,
            Absent.UNSUPPORTED,
            source,
            f"this nvidia-smi does not know {name}",
        )
        for field, name in unknown.items()
    ]


def _reading(gpu: int, column: Column, cell: str, source: str, line: str) -> Reading:
    """Read one cell. Words in brackets that nobody knows are how nvidia-smi says that it failed."""
    value: float | str | Absent
    detail = escaped(cell)[:QUOTED_CHARACTERS] or None
    if (reason := WORDS.get(cell.lower())) is not None:
        value = reason
    elif cell.startswith("[") and cell.endswith("]"):
        value = Absent.FAILED
    else:
        try:
            value = plausible(column.field, column.read(cell))
        except ValueError as error:
            raise _bad(source, f"{column.name} {error}", line) from None
    machine = FIELDS[column.field].machine
    return Reading(
        None if machine else gpu,
        column.field,
        value,
        source,
        detail if isinstance(value, Absent) else None,
    )


def quoted(line: str) -> str:
    """Show a line of somebody else's output: harmless, and not longer than a person reads."""
    shown = escaped(line.strip())
    return shown if len(shown) <= QUOTED_CHARACTERS else f"{shown[:QUOTED_CHARACTERS]}..."


def _bad(source: str, what: str, line: str | None = None) -> TelemetryError:
    words = f"{source}: {what}" if line is None else f'{source}: {what}: "{quoted(line)}"'
    return TelemetryError(words, reason="bad_output")
