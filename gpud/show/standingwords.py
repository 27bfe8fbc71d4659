"""How a figure stands to what is usual, in the same words and with the same number everywhere.

What fires is told with the size that its alert has: that of the runs which decided it. Where the
figure beside it is another by now, what that comes to is told too, and when the first was decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpud.core.stats import compared

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIKE: Final = 0.03
"""Below what no detector tells from noise."""
RATES: Final = frozenset({"bytes_per_second", "flops_per_second"})
AS_USUAL: Final = "as usual"


class Standing(NamedTuple):
    """``much`` is what fits into a column; ``whole`` says more where there is more to say.

    ``now`` is what the shown figure comes to where that is not what fires, which was decided at
    ``at_s``, in Unix time.
    """

    much: str
    whole: str
    fires: bool = False
    now: str = ""
    at_s: float | None = None


def standing(stream: Mapping[str, Any] | None, figure: float | None = None) -> Standing:
    """Say how a stream of the status document stands; foreign words in it are not escaped yet.

    ``figure`` is the one that is shown beside it, in the stream's unit.
    """
    if stream is None:
        return Standing("", "not judged")
    if stream.get("open"):
        worst = max(stream["open"], key=lambda one: slowdown(one["effect"]))
        much = compared(slowdown(worst["effect"]))
        since = f" since driver {worst['new_driver'][:80]}" if worst["kind"] == "driver" else ""
        now = latest_change(stream, figure)
        return Standing(much, f"{much}{since}", fires=True, now=now, at_s=worst.get("at_s"))
    ratio = stream.get("slowdown")
    if stream.get("level") is None or ratio is None:
        return Standing("", f"learning what is usual, {stream['seen']} runs so far")
    much = _compared(ratio)
    return Standing(much, much if much == AS_USUAL else f"{much} than usual")


def _compared(ratio: float) -> str:
    return AS_USUAL if abs(ratio - 1) < ALIKE else compared(ratio)


def latest_change(stream: Mapping[str, Any] | None, figure: float | None) -> str:
    """Say what a figure comes to by itself; nothing where that is what is said of its stream."""
    usual = None if stream is None else stream.get("usual")
    if stream is None or not figure or not usual:
        return ""
    sizes = [slowdown(one["effect"]) for one in stream.get("open") or ()]
    decided = max(sizes, default=stream.get("slowdown"))
    ratio = usual / figure if stream["unit"] in RATES else figure / usual
    return "" if not decided or abs(ratio / decided - 1) < ALIKE else _compared(ratio)


def slowdown(effect: Mapping[str, float]) -> float:
    """Give an effect as a time: 0.9 of a rate is 11 % more time."""
    ratio = float(effect["ratio"])
    return max(ratio, 1 / ratio)


def lower_bound(effect: Mapping[str, float]) -> float:
    """Give the lower end of an effect's interval, as a time."""
    ends = effect["low"], effect["high"]
    return float(min(ends) if effect["ratio"] > 1 else 1 / max(ends))
