"""Words for a figure beside its baseline: the same words and the same number everywhere.

What fires is told with the size that its alert has: that of the runs which decided it. Where the
figure beside it is another by now, what that comes to is told too, and when the first was decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.stats import compared

if TYPE_CHECKING:
    from gpud.show.document import Stream

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


def standing(stream: Stream | None, figure: float | None = None) -> Standing:
    """Say how a stream stands; foreign words in it are not escaped yet.

    ``figure`` is the one that is shown beside it, in the stream's unit.
    """
    if stream is None:
        return Standing("", "not judged")
    now = latest_change(stream, figure)
    if stream.open:
        worst = max(stream.open, key=lambda alarm: alarm.effect.slowdown)
        much = compared(worst.effect.slowdown)
        since = f" since driver {worst.new_driver[:80]}" if worst.kind == "driver" else ""
        return Standing(much, f"{much}{since}", fires=True, now=now, at_s=worst.at_s)
    if stream.level is None or stream.slowdown is None:
        return Standing("", f"learning what is usual, {stream.seen} runs so far")
    much = _compared(stream.slowdown)
    return Standing(much, much if much == AS_USUAL else f"{much} than usual")


def latest_change(stream: Stream | None, figure: float | None) -> str:
    """Say what a figure comes to by itself; nothing where that is what is said of its stream."""
    if stream is None or not figure or not stream.usual:
        return ""
    sizes = [alarm.effect.slowdown for alarm in stream.open]
    decided = max(sizes, default=stream.slowdown)
    ratio = stream.usual / figure if stream.unit in RATES else figure / stream.usual
    return "" if not decided or abs(ratio / decided - 1) < ALIKE else _compared(ratio)


def _compared(ratio: float) -> str:
    return AS_USUAL if abs(ratio - 1) < ALIKE else compared(ratio)
