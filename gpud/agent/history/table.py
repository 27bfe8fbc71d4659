"""The history for a person: one line for each run and mode, the newest last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from gpud.core.sample import Unit
from gpud.core.stats import human
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpud.agent.historyrows import Row

HEAD = ("time", "on", "probe", "mode", "median", "p10 to p90", "driver", "")
SHORT = 12
"""Characters of a UUID that tell GPUs apart where no agent has numbered them."""


def lines(rows: Sequence[Row], numbers: Mapping[str, int]) -> list[str]:
    """Draw rows in columns, none of which is cut; ``numbers`` are those of GPUs by UUID."""
    cells = [HEAD, *(_cells(row, numbers) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _cells(row: Row, numbers: Mapping[str, int]) -> tuple[str, ...]:
    told = (_time(row), _place(row, numbers), row.probe, row.mode or "", *_figures(row))
    driver = row.conditions.get("driver_version")
    return tuple(map(escaped, (*told, str(driver or ""), _marks(row))))


def _time(row: Row) -> str:
    """Write it as the clock on the wall has it."""
    try:
        at = datetime.fromtimestamp(row.at_s).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{row.at_s:.0f}"
    return f"{at:%Y-%m-%d %H}h" if row.hourly else f"{at:%Y-%m-%d %H:%M:%S}"


def _place(row: Row, numbers: Mapping[str, int]) -> str:
    if row.gpu is None:
        return "a GPU" if row.backend == "cuda" else "CPU"
    return f"GPU {numbers[row.gpu]}" if row.gpu in numbers else row.gpu[:SHORT]


def _figures(row: Row) -> tuple[str, str]:
    if row.failure is not None:
        return f"failed: {row.failure.get('reason', 'unknown')}", ""
    known, unit = row.figures, row.unit or ""
    if unit not in set(Unit) or "median" not in known:
        return "-", ""
    spread = [human(known[name], unit) for name in ("p10", "p90") if name in known]
    return human(known["median"], unit), " to ".join(spread)


def _marks(row: Row) -> str:
    if row.failure is not None:
        return str(row.failure.get("detail", ""))
    if not row.hourly:
        return ", ".join(row.flags)
    runs = [f"{row.n} run{'s' if row.n != 1 else ''}"]
    runs += [f"{row.flagged} marked"] if row.flagged else []
    return ", ".join(runs)
