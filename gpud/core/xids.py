"""Xids over the life of the agent: the helper that counts them is begun anew now and then.

Shapes: ``xids`` is "31:2,79:1" (code and count, "none" for none), ``xid_last`` a code, 0 for none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpud.core.gpus import MOST_KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpud.core.sample import Reading

NONE: Final = "none"
MOST_CODES: Final = 16
HIGHEST: Final = 1000
"""NVIDIA's list of Xids ends below 200; anything beyond this is none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Xids of one GPU: how often each, and which was the last."""

    counts: Mapping[int, int]
    last: float = 0.0


def told(counts: Mapping[int, int]) -> str:
    """Write counts in the order of their codes; those of more codes than fit are left out."""
    codes = sorted(counts)[:MOST_CODES]
    return ",".join(f"{code}:{counts[code]}" for code in codes) or NONE


def seen(readings: Iterable[Reading]) -> dict[str, Seen]:
    """Read each GPU's Xids back, by its UUID; of one that does not tell them there is nothing."""
    said: dict[int | None, dict[str, float | str]] = {}
    for reading in readings:
        if type(reading.value) in {str, float}:  # a reason is a str of another type
            said.setdefault(reading.gpu, {})[reading.field] = reading.value
    return {
        uuid: Seen(_counts(text), last)
        for fields in said.values()
        if isinstance(uuid := fields.get("uuid"), str)
        and isinstance(text := fields.get("xids"), str)
        and isinstance(last := fields.get("xid_last"), float)
    }


def together(earlier: Mapping[str, Seen], later: Mapping[str, Seen]) -> dict[str, Seen]:
    """Add what was counted later to what was counted earlier; of too many GPUs, the latest."""
    whole = {**earlier, **{uuid: _sum(earlier.get(uuid), now) for uuid, now in later.items()}}
    return dict(list(whole.items())[-MOST_KNOWN:])


def carried(earlier: Mapping[str, Seen], readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """Give the readings with what was counted earlier in their Xids."""
    uuids = {r.gpu: r.value for r in readings if r.field == "uuid" and type(r.value) is str}
    whole = together(earlier, seen(readings))
    return tuple(_of(reading, whole.get(uuids.get(reading.gpu, ""))) for reading in readings)


def _of(reading: Reading, whole: Seen | None) -> Reading:
    if whole is None or type(reading.value) not in {str, float}:
        return reading
    if reading.field == "xids":
        return replace(reading, value=told(whole.counts))
    return replace(reading, value=whole.last) if reading.field == "xid_last" else reading


def _sum(earlier: Seen | None, later: Seen) -> Seen:
    if earlier is None:
        return later
    codes = {**earlier.counts, **later.counts}
    counts = {code: earlier.counts.get(code, 0) + later.counts.get(code, 0) for code in codes}
    return Seen(counts, later.last or earlier.last)


def _counts(text: str) -> dict[int, int]:
    parts = (part.partition(":") for part in text.split(",") if text != NONE)
    return {
        int(code): int(count) for code, _, count in parts if code.isdecimal() and count.isdecimal()
    }
