"""Numbers, durations and moments as people read them, and slugs as words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gpud.show.document import Effect

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
GIB, MIB, MHZ = float(1 << 30), float(1 << 20), 1e6
AGE_FROM_S: Final = 30.0
"""From when on it is said how old the values of a source are."""


def moment(at_s: float) -> str:
    """Write a moment as the clock on the wall has it."""
    return _local("%Y-%m-%d %H:%M", at_s)


def day(at_s: float) -> str:
    """Write the day of a moment."""
    return _local("%Y-%m-%d", at_s)


def clock(at_s: float) -> str:
    """Write the time of day of a moment, to the second."""
    return _local("%X", at_s)


def _local(form: str, at_s: float) -> str:
    try:
        return time.strftime(form, time.localtime(at_s))
    except (OverflowError, OSError, ValueError):
        return f"{at_s:.0f}"


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


def duration(seconds: float) -> str:
    """Write a duration in its largest unit: "7.2 days", "3.5 h", "12.0 min", "4.0 s"."""
    for unit_s, name in ((DAY_S, "days"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.1f} s"


def size(n_bytes: float) -> str:
    """Write a size: "512 B", "54.2 MiB", "11.9 GiB"."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024.0, "KiB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes:.0f} B"


def span(low: float, high: float, join: str = " to ") -> str:
    """Write the interval of a slowdown: 1.1 and 1.2 are "10.0 to 20.0 %"."""
    return f"{100 * (low - 1):.1f}{join}{100 * (high - 1):.1f} %"


def interval(effect: Effect, join: str = " to ") -> str:
    """Write the interval that holds an effect nine times in ten, as a time."""
    return span(*effect.interval, join)


def spaced(slug: str) -> str:
    """Write a slug as words: "gpu_busy" is "gpu busy"."""
    return slug.replace("_", " ")


def plural(count: int, noun: str) -> str:
    """Count things: "1 restart", "2 restarts"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def place(gpu: int | None) -> str:
    """Name a GPU by its number, and the CPU."""
    return "CPU" if gpu is None else f"GPU {gpu}"
