"""How the report says things, in the terminal and on the page alike. Pure; nothing is escaped."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from gpud.core.probewords import name_of
from gpud.core.stats import compared, human

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import tzinfo

    from gpud.core.sample import Unit
    from gpud.core.streams import StreamKey
    from gpud.report.model import Report, Stretch

DAY_S: Final = 86400.0
HOUR_S: Final = 3600.0
MINUTE_S: Final = 60.0
LAST_S: Final = 2.0**37
SHORT: Final = 12
"""Characters of a UUID that tell the GPUs of one machine apart."""
ALIKE: Final = 0.01
UNKNOWN_DRIVER: Final = "not known"


def against(slowdown: float) -> str:
    """Compare two levels; what is less than a hundredth apart is not."""
    return "as before" if abs(slowdown - 1) < ALIKE else compared(slowdown)


def lasts(stretch: Stretch, report: Report) -> bool:
    """Say whether a driver is the present one, as far as the last runs tell."""
    return stretch is report.stretches[-1] and report.until_s - stretch.until_s < HOUR_S


def share(ratio: float) -> str:
    """Write a share: "0 %", "0.4 %", "12 %"."""
    if ratio and ratio < 0.0995:  # noqa: PLR2004  # as above
        return f"{100 * ratio:.1f} %"
    return f"{100 * ratio:.0f} %"


def moment(at_s: float, zone: tzinfo | None) -> str:
    """Write a moment to the minute; ``zone`` None is the local one.

    A clock may have said anything: what no calendar has is the first or the last day that one has.
    """
    return datetime.fromtimestamp(min(max(at_s, 0.0), LAST_S), zone).strftime("%Y-%m-%d %H:%M")


def day(at_s: float, zone: tzinfo | None) -> str:
    """Write the day of a moment."""
    return moment(at_s, zone)[: len("2026-01-01")]


def duration(seconds: float) -> str:
    """Write a duration in its largest unit: "7.2 days", "3.5 h", "12 min"."""
    for unit_s, name in ((DAY_S, "days"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.1f} {name}"
    return f"{seconds:.0f} s"


def size(n_bytes: int) -> str:
    """Write the size of a file."""
    return f"{n_bytes / 1e6:.1f} MB"


def place(gpu: str | None, names: Mapping[str, str]) -> str:
    """Name a GPU: by its name, and the beginning of its UUID where another has the same."""
    if gpu is None:
        return "CPU"
    name = names.get(gpu, "")
    if not name:
        return gpu
    alike = sum(1 for other in names.values() if other == name)
    return name if alike == 1 else f"{name} ({gpu[:SHORT]})"


def stream(key: StreamKey, several: Collection[str] = ()) -> str:
    """Name a stream beside its GPU, as the commands do: "launch submit", or "triad" alone.

    The version of the method is told of probes that are here in ``several``.
    """
    name = name_of(key.probe, key.mode)
    version = f" v{key.version}" if key.probe in several else ""
    return f"{name}{version}{', on battery' if key.on_battery else ''}"


def span(low: float, high: float, unit: Unit) -> str:
    """Write a range, its unit once where both have the same: "12.1-12.9 µs"."""
    first, last = human(low, unit), human(high, unit)
    figure, _, symbol = first.partition(" ")
    alike = symbol == last.partition(" ")[2] and " x " not in first
    return f"{figure}-{last}" if alike else f"{first}-{last}"


def count(number: int) -> str:
    """Write a count with its thousands apart."""
    return f"{number:,}"
