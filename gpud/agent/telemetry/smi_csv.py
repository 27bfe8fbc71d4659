"""The CSV of nvidia-smi: the columns to ask for, and readings from its answer.

CSV, because its XML and its tables change with every driver. An answer is read as a whole or
refused as a whole: a line that does not fit says that something is not as believed, and then the
lines that seem to fit are not to be believed either.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent.telemetry import windows
from gpud.core import throttle
from gpud.core.errors import TelemetryError
from gpud.core.fields import FIELDS, plausible, reason_of, scaled
from gpud.core.sample import Absent, Reading
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_GPUS = 128
QUOTED_CHARACTERS = 120

_REFUSED = re.compile(r'Field "([a-z0-9_.]{1,64})" is not a valid field to query')


def _cell(pattern: str, words: str, value: Callable[[str], object]) -> Callable[[str], object]:
    """Return a function that reads a cell of one shape. Its errors: ``ValueError(words)``."""
    shape = re.compile(pattern, re.ASCII | re.IGNORECASE)

    def read_cell(cell: str) -> object:
        if not shape.fullmatch(cell):
            raise ValueError(words)
        return value(cell)

    return read_cell


def _number(factor: float = 1.0) -> Callable[[str], object]:
    return _cell(
        r"-?\d{1,20}(?:\.\d{1,9})?",
        "is no number",
        lambda cell: scaled(float(cell) if "." in cell else int(cell), factor),
    )


_bits = _cell(r"0x[0-9a-f]{1,16}", "is no bit mask", lambda cell: throttle.words(int(cell, 16)))
_pstate = _cell(r"P\d{1,3}", "is no performance state", lambda cell: float(cell[1:]))
_switch = _cell("enabled|disabled", "is neither Enabled nor Disabled", str.lower)


@dataclass(frozen=True, slots=True)
class Column:
    """One name of ``--query-gpu``, its field, and the function that reads a cell of it.

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
"""Columns that every driver since 2016 knows. A counter is the one that NVML is asked for: one that
starts over with each boot would fall, and rise again, whenever the other source takes over."""

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
"""Asked first: the GPU of a line, and the number of lines there must be."""


def columns(left_out: frozenset[str] = frozenset()) -> tuple[Column, ...]:
    """Return the columns to ask for, without those that this nvidia-smi does not know."""
    return tuple(
        column
        for column in COLUMNS
        if column.name not in left_out and (not column.replaces or column.replaces in left_out)
    )


def arguments(left_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the command line, less the program."""
    names = (*GUARDS, *(column.name for column in columns(left_out)))
    return (f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits")


def refused(output: str) -> str | None:
    """Return the name of the column that nvidia-smi says it does not know."""
    match = _REFUSED.search(output)
    return None if match is None else match[1]


def without(left_out: frozenset[str], name: str) -> frozenset[str]:
    """Add a refused column to those left out, and with a newer one all that came after it."""
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
        try:
            row = _row(line, len(lines), source, left_out)
        except ValueError as error:
            raise _bad_output(source, str(error), line) from None
        for reading in row:
            first = readings.setdefault((reading.gpu, reading.field), reading)
            if first is not reading and (reading.gpu is not None or first.value != reading.value):
                raise _bad_output(source, f"{reading.field} comes twice", line)
    uuids = [reading.value for reading in readings.values() if reading.field == "uuid"]
    if any(uuids.count(uuid) > 1 for uuid in uuids if not isinstance(uuid, Absent)):
        raise _bad_output(source, "one UUID comes twice", lines[-1])
    return tuple(readings.values())


def _lines(output: str, source: str) -> list[str]:
    if output.startswith("No devices were found"):
        raise TelemetryError(f"{source}: No devices were found", reason="no_device")
    if not output:
        raise _bad_output(source, "it ended well and said nothing")
    if not output.endswith("\n"):
        raise _bad_output(source, "the answer breaks off", output.rpartition("\n")[2])
    lines = [line.removesuffix("\r") for line in output[:-1].split("\n")]
    if len(lines) > MOST_GPUS:
        raise _bad_output(source, f"{len(lines)} lines, more than {MOST_GPUS} GPUs", lines[0])
    return lines


def _row(line: str, count: int, source: str, left_out: frozenset[str]) -> list[Reading]:
    """Read one line. ``Errors: ValueError`` in words, for what does not fit."""
    asked = columns(left_out)
    try:
        cells = [
            cell.strip() for cell in next(csv.reader([line], skipinitialspace=True, strict=True))
        ]
    except (csv.Error, StopIteration):
        raise ValueError("no line of CSV") from None
    expected = len(GUARDS) + len(asked)
    if len(cells) != expected or not line.isprintable():
        raise ValueError(f"{len(cells)} columns instead of {expected}")
    for name, cell in zip(GUARDS, cells, strict=False):
        if not (cell.isascii() and cell.isdigit() and len(cell) <= len(str(MOST_GPUS))):
            raise ValueError(f"{name} is no number")
    gpu, gpus = int(cells[0]), int(cells[1])
    if gpus != count:
        raise ValueError(f"{count} lines for {gpus} GPUs")
    values = zip(asked, cells[len(GUARDS) :], strict=True)
    readings = [_reading(gpu, column, cell, source) for column, cell in values]
    given = {column.field for column in asked}
    unknown = {column.field: column.name for column in COLUMNS if column.field not in given}
    for field, name in unknown.items():
        detail = f"this nvidia-smi does not know {name}"
        readings.append(_of(gpu, field, Absent.UNSUPPORTED, source, detail))
    return readings


def _reading(gpu: int, column: Column, cell: str, source: str) -> Reading:
    """Read one cell. Unlisted words in brackets mean that nvidia-smi failed."""
    value: float | str | Absent
    if (reason := reason_of(cell)) is not None:
        value = reason
    elif cell.startswith("[") and cell.endswith("]"):
        value = Absent.FAILED
    else:
        try:
            value = plausible(column.field, column.read(cell))
        except ValueError as error:
            raise ValueError(f"{column.name} {error}") from None
    detail = escaped(cell)[:QUOTED_CHARACTERS] or None
    return _of(gpu, column.field, value, source, detail if isinstance(value, Absent) else None)


def _of(
    gpu: int, field: str, value: float | str | Absent, source: str, detail: str | None
) -> Reading:
    return Reading(None if FIELDS[field].machine else gpu, field, value, source, detail)


def quoted(line: str) -> str:
    """Return a line of another program's output: harmless, and not longer than a person reads."""
    shown = escaped(line.strip())
    return shown if len(shown) <= QUOTED_CHARACTERS else f"{shown[:QUOTED_CHARACTERS]}..."


def _bad_output(source: str, words: str, line: str | None = None) -> TelemetryError:
    message = f"{source}: {words}" if line is None else f'{source}: {words}: "{quoted(line)}"'
    return TelemetryError(message, reason="bad_output")
