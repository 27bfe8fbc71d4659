"""The history for a person: one line for each run and mode, the newest last."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
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
_UNITS = frozenset(unit.value for unit in Unit)
_escaped = lru_cache(maxsize=256)(escaped)
"""A day has 14,400 rows, and few different names."""


def lines(rows: Sequence[Row], numbers: Mapping[str, int]) -> list[str]:
    """Draw rows in columns, none of which is cut; ``numbers`` are those of GPUs by UUID."""
    cells = [HEAD, *(_cells(row, numbers) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _cells(row: Row, numbers: Mapping[str, int]) -> tuple[str, ...]:
    foreign = (_place(row, numbers), row.probe, row.mode or "")
    last = (str(row.conditions.get("driver_version") or ""), _marks(row))
    median, spread = _figures(row)
    return (
        _time(row.at_s, hourly=row.hourly),
        *map(_escaped, foreign),
        _escaped(median),
        spread,
        *map(_escaped, last),
    )


@lru_cache(maxsize=16)
def _time(at_s: float, *, hourly: bool) -> str:
    """Write it as the clock on the wall has it."""
    try:
        at = datetime.fromtimestamp(at_s)  # noqa: DTZ006  # the wall's
    except (ValueError, OverflowError, OSError):
        return f"{at_s:.0f}"
    return f"{at:%Y-%m-%d %H}h" if hourly else at.isoformat(" ", "seconds")


def _place(row: Row, numbers: Mapping[str, int]) -> str:
    if row.gpu is None:
        return "a GPU" if row.backend == "cuda" else "CPU"
    return f"GPU {numbers[row.gpu]}" if row.gpu in numbers else row.gpu[:SHORT]


def _figures(row: Row) -> tuple[str, str]:
    if row.failure is not None:
        return f"failed: {row.failure.get('reason', 'unknown')}", ""
    known, unit = row.figures, row.unit or ""
    if unit not in _UNITS or "median" not in known:
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
