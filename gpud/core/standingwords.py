"""How a figure stands to what is usual, in the same words and with the same number everywhere.

What fires is told with the size that its alert has: that of the runs which decided it. The runs
since then are the figure beside it, and what they come to by themselves is told only while nothing
fires: one slowdown has one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.core.stats import compared

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIKE: Final = 0.03
"""Below what no detector tells from noise."""
AS_USUAL: Final = "as usual"


class Said(NamedTuple):
    """``much`` is what fits into a column; ``whole`` says more where there is more to say."""

    much: str
    whole: str
    fires: bool = False


def said(stream: Mapping[str, Any] | None) -> Said:
    """Say how a stream of the status document stands; foreign words in it are not escaped yet."""
    if stream is None:
        return Said("", "not judged")
    if stream.get("open"):
        worst = max(stream["open"], key=lambda one: slowdown(one["effect"]))
        much = compared(slowdown(worst["effect"]))
        since = f" since driver {worst['new_driver'][:80]}" if worst["kind"] == "driver" else ""
        return Said(much, f"{much}{since}", fires=True)
    ratio = stream.get("slowdown")
    if stream.get("level") is None or ratio is None:
        return Said("", f"learning what is usual, {stream['seen']} runs so far")
    if abs(ratio - 1) < ALIKE:
        return Said(AS_USUAL, AS_USUAL)
    return Said(compared(ratio), f"{compared(ratio)} than usual")


def slowdown(effect: Mapping[str, float]) -> float:
    """Give an effect as a time: 0.9 of a rate is 11 % more time."""
    ratio = float(effect["ratio"])
    return max(ratio, 1 / ratio)
