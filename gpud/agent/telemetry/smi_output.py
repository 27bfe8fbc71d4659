"""The output of nvidia-smi: columns to ask for, readings from its CSV, reasons for exit codes.

CSV, because XML and the tables change with every driver. An answer is read as a whole or refused
as a whole: where one line does not fit, the others are not to be believed either.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.agent.telemetry import fields, windows
from gpud.agent.telemetry.codes import CODES
from gpud.agent.telemetry.fields import FIELDS, plausible, reason_of, scaled
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent, Reading
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpud.agent.children import Ended

LONGEST_QUOTE: Final = 120


def _number(factor: float) -> Callable[[str], object]:
    return lambda cell: scaled(float(cell), factor)


def _switch(cell: str) -> str:
    if (word := cell.lower()) not in {"enabled", "disabled"}:
        raise ValueError
    return word


@dataclass(frozen=True, slots=True)
class SmiColumn:
    """One name of ``--query-gpu``; ``read`` converts a cell, and may raise ``ValueError``."""

    name: str
    field: str
    read: Callable[[str], object] = str


_MIB, _MHZ, _PERCENT, _PLAIN = map(_number, (float(1 << 20), 1e6, 0.01, 1.0))

COLUMNS: Final = (
    SmiColumn("driver_version", "driver_version"),
    SmiColumn("name", "name"),
    SmiColumn("uuid", "uuid"),
    SmiColumn("pci.bus_id", "pci_bus_id"),
    SmiColumn("vbios_version", "vbios_version"),
    SmiColumn("memory.total", "memory_total_bytes", _MIB),
    SmiColumn("memory.used", "memory_used_bytes", _MIB),
    SmiColumn("memory.free", "memory_free_bytes", _MIB),
    SmiColumn("utilization.gpu", "utilization_gpu_ratio", _PERCENT),
    SmiColumn("utilization.memory", "utilization_memory_ratio", _PERCENT),
    SmiColumn("temperature.gpu", "temperature_celsius", _PLAIN),
    SmiColumn("power.draw", "power_watts", _PLAIN),
    SmiColumn("enforced.power.limit", "power_limit_watts", _PLAIN),
    SmiColumn("clocks.gr", "clock_graphics_hertz", _MHZ),
    SmiColumn("clocks.sm", "clock_sm_hertz", _MHZ),
    SmiColumn("clocks.mem", "clock_memory_hertz", _MHZ),
    SmiColumn("clocks.video", "clock_video_hertz", _MHZ),
    SmiColumn("clocks.max.gr", "clock_graphics_max_hertz", _MHZ),
    SmiColumn("clocks.max.sm", "clock_sm_max_hertz", _MHZ),
    SmiColumn("clocks.max.mem", "clock_memory_max_hertz", _MHZ),
    SmiColumn("pstate", "pstate", lambda cell: float(cell.removeprefix("P"))),
    SmiColumn(
        "clocks_throttle_reasons.active",
        "throttle_reasons",
        lambda cell: fields.throttle_words(int(cell, 16)),
    ),
    SmiColumn("pcie.link.gen.current", "pcie_generation", _PLAIN),
    SmiColumn("pcie.link.gen.max", "pcie_generation_max", _PLAIN),
    SmiColumn("pcie.link.width.current", "pcie_width", _PLAIN),
    SmiColumn("pcie.link.width.max", "pcie_width_max", _PLAIN),
    SmiColumn("fan.speed", "fan_ratio", _PERCENT),
    SmiColumn("ecc.mode.current", "ecc_mode", _switch),
    # As NVML is asked: a count since boot would fall whenever the other source takes over.
    SmiColumn("ecc.errors.corrected.aggregate.total", "ecc_corrected_total", _PLAIN),
    SmiColumn("ecc.errors.uncorrected.aggregate.total", "ecc_uncorrected_total", _PLAIN),
)
"""What every driver since 2016 knows: one unknown name costs the whole answer."""
ARGUMENTS: Final = (
    f"--query-gpu={','.join(['index', 'count', *(column.name for column in COLUMNS)])}",
    "--format=csv,noheader,nounits",
)
"""The command line, less the program. First come the GPU of a line and their number."""


def read_csv(data: bytes, source: str) -> tuple[Reading, ...]:
    """Read the answer to ``ARGUMENTS``: each field of every GPU, a value or a reason.

    Units: MiB, MHz, percent and watts come in, base units go out. ``driver_version`` is of the
    machine and comes once.
    Errors: ``TelemetryError`` with ``bad_output``, which quotes the line that does not fit, or with
    ``no_device`` where the program says so with exit code 0, as older ones do.
    """
    output = windows.text(data)
    if output.startswith("No devices were found"):
        raise TelemetryError(f"{source}: No devices were found", reason="no_device")
    lines = output.splitlines()
    if not output.endswith("\n"):
        words = "the answer breaks off" if lines else "it wrote nothing"
        raise bad_output(f"{source}: {words}", lines[-1] if lines else "")
    readings: dict[tuple[int | None, str], Reading] = {}
    for gpu, line in enumerate(lines):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
            if cells[:2] != [str(gpu), str(len(lines))]:
                raise ValueError(f"not the line of GPU {gpu} of {len(lines)}")  # noqa: TRY301
            if len(cells) != 2 + len(COLUMNS):
                raise ValueError(f"{len(cells)} columns and not {2 + len(COLUMNS)}")  # noqa: TRY301
            for reading in _row(gpu, cells[2:], source):
                readings.setdefault((reading.gpu, reading.field), reading)
        except (ValueError, csv.Error, StopIteration) as error:
            raise bad_output(f"{source}: {error or 'no CSV'}", line) from None
    return tuple(readings.values())


def _row(gpu: int, cells: list[str], source: str) -> Iterator[Reading]:
    """Read one line. ``Errors: ValueError`` in words, for what does not fit."""
    for column, cell in zip(COLUMNS, cells, strict=True):
        owner = None if FIELDS[column.field].machine else gpu
        value = _value(column, cell)
        detail = (escaped(cell)[:LONGEST_QUOTE] or None) if isinstance(value, Absent) else None
        yield Reading(owner, column.field, value, source, detail)


def _value(column: SmiColumn, cell: str) -> float | str | Absent:
    """Read one cell. Unlisted words in brackets mean that nvidia-smi failed."""
    if (reason := reason_of(cell)) is not None:
        return reason
    if cell.startswith("[") and cell.endswith("]"):
        return Absent.FAILED
    try:
        return plausible(column.field, column.read(cell))
    except (ValueError, OverflowError):
        raise ValueError(f"not a value of {column.name}") from None


def bad_output(message: str, line: str = "") -> TelemetryError:
    """Return the error for output that is not what was asked for."""
    return TelemetryError(message + _quoted(line), reason="bad_output")


def _quoted(line: str) -> str:
    """Return a line of another program's output to put behind a message, harmless and short."""
    shown = escaped(line.strip())
    shown = shown if len(shown) <= LONGEST_QUOTE else f"{shown[:LONGEST_QUOTE]}..."
    return f': "{shown}"' if shown else ""


REASONS: Final[Mapping[int, str]] = {code: reason for code, (reason, _) in CODES.items()} | {
    2: "invalid_argument",
    3: "not_supported",
    6: "no_device",
    8: "power_cable",
    10: "interrupt_trouble",
    14: "inforom_corrupted",
    126: "not_executable",
    127: "absent",
}
NOT_STARTED: Final = 1
"""The exit code of WSL's own starter of Windows programs when it cannot start one."""
FIXES: Final[Mapping[str, str]] = {
    "invalid_argument": "update the NVIDIA driver in Windows",
    "no_device": "look in Windows' Device Manager: the GPU is disabled or has no driver",
    "power_cable": "switch off and attach the GPU's power cables",
    "gpu_is_lost": "restart Windows; the GPU may be too hot, badly seated or broken",
    "hung": "restart Windows: its own NVIDIA driver does not answer",
    "interop_failed": "run `wsl --shutdown` in Windows and open the distribution again",
    **dict.fromkeys(
        ("driver_not_loaded", "library_missing", "symbol_missing", "driver_mismatch", "crashed"),
        "restart Windows; if it stays, install the NVIDIA driver there again",
    ),
}
"""What helps in Windows, by reason."""


def exit_error(ended: Ended, source: str) -> TelemetryError:
    """Return the error for an exit code other than 0; negative: a signal."""
    code = ended.code or 0
    output = windows.text(ended.stdout).strip() or windows.text(ended.stderr).strip()
    reason, message = REASONS.get(code, "failed"), f"{source} ended with {code}"
    if code < 0:
        reason, message = "crashed", f"{source}: killed by {children.signal_name(-code)}"
    elif code == NOT_STARTED:
        reason = "interop_failed"
    message += f", {reason.replace('_', ' ')}{_quoted(output.partition(chr(10))[0])}"
    return TelemetryError(message, reason=reason, fix=FIXES.get(reason))
