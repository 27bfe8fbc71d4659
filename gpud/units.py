"""Numbers, durations and moments as people read them, and slugs as words."""

from __future__ import annotations

import time
from typing import Final

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
YEAR_9999_S: Final = 253402300799.0
"""The end of the calendar: a clock may say anything."""
AGE_FROM_S: Final = 30.0
"""From when on it is said how old the values of a source are."""
AMOUNTS: Final = {
    "_celsius": (1.0, "°C"),
    "_watts": (1.0, "W"),
    "_hertz": (1e6, "MHz"),
    "_ratio": (0.01, "%"),
    "_joules_total": (1e3, "kJ"),
    "_seconds_total": (1.0, "s"),
}
"""Units of fields of telemetry, by the ends of their names."""


def moment(at_s: float) -> str:
    """Write a moment as the clock on the wall has it."""
    return local("%Y-%m-%d %H:%M", at_s)


def clock(at_s: float) -> str:
    """Write the time of day of a moment, to the second."""
    return local("%H:%M:%S", at_s)


def day(at_s: float) -> str:
    """Write the day of a moment."""
    return local("%Y-%m-%d", at_s)


def local(form: str, at_s: float) -> str:
    """Write a moment in this machine's zone, in a form of ``strftime``."""
    try:
        return time.strftime(form, time.localtime(at_s))
    except (OverflowError, OSError, ValueError):
        return f"{at_s:.0f}"


def utc(at_s: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    """Write a moment in UTC; one beyond the calendar is the nearest that it has."""
    return time.strftime(form, time.gmtime(min(max(at_s, 0.0), YEAR_9999_S)))


def lasted(seconds: float) -> str:
    """Write a duration in its two largest parts: "3 h 12 min"."""
    whole = max(0.0, seconds)
    for unit_s, unit, part_s, part in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
    ):
        if whole >= unit_s:
            count, rest = divmod(whole, unit_s)
            return f"{count:.0f} {unit} {rest // part_s:.0f} {part}"
    return f"{whole // MINUTE_S:.0f} min" if whole >= MINUTE_S else f"{whole:.0f} s"


def size(n_bytes: float) -> str:
    """Write a size: "512 B", "54.2 MiB", "11.9 GiB"."""
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if n_bytes >= 1 << power:
            return f"{n_bytes / (1 << power):.1f} {name}"
    return f"{n_bytes:.0f} B"


def amount(value: float, field: str) -> str:
    """Write a value of telemetry in the unit that its field's name ends with."""
    if field.endswith(("_bytes", "_bytes_per_second")):
        return f"{size(value)}{'/s' if field.endswith('_per_second') else ''}"
    if field == "pstate":
        return f"P{value:.0f}"
    scale, unit = next(
        (unit for suffix, unit in AMOUNTS.items() if field.endswith(suffix)), (1.0, "")
    )
    return f"{value / scale:.0f} {unit}".rstrip()


def span(low: float, high: float, join: str = " to ") -> str:
    """Write the interval of a slowdown: 1.1 and 1.2 are "10.0 to 20.0 %"."""
    return f"{100 * (low - 1):.1f}{join}{100 * (high - 1):.1f} %"


def spaced(slug: str) -> str:
    """Write a slug as words: "gpu_busy" is "gpu busy"."""
    return slug.replace("_", " ")


def plural(count: int, noun: str) -> str:
    """Count things: "1 restart", "2,000 restarts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def place(gpu: int | None) -> str:
    """Name a GPU by its number, and the CPU."""
    return "CPU" if gpu is None else f"GPU {gpu}"
