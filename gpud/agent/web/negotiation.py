"""What a request says of the answer it wants: whether gzip will do, and what it has already."""

from __future__ import annotations


def accepts_gzip(header: str) -> bool:
    """Say whether ``Accept-Encoding`` allows gzip; ``gzip;q=0`` forbids it."""
    told: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        try:
            told[name.strip()] = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            told[name.strip()] = 0.0
    return told.get("gzip", told.get("*", 0.0)) > 0


def has(header: str, *tags: str) -> bool:
    """Say whether ``If-None-Match`` names one of ``tags``, which come with their quotes.

    A weak one is as good: nothing is put together from parts.
    """
    asked = {part.strip().removeprefix("W/") for part in header.split(",")}
    return not asked.isdisjoint({"*", *tags})
