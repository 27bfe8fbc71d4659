"""Search for the size from which a GPU beats the CPU, over two costs that the caller measures.

The costs are noisy, and their curves may cross more than once. So sizes double until the GPU is
clearly ahead, the gap between the last defeat and the victories after it is bisected, and both
sides of what is left are measured once more before they are believed.
"""

from __future__ import annotations

from gpud.core.record import Record
from gpud.core.sample import Point
from gpud.core.stats import median

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

Cost: TypeAlias = "Callable[[int], float]"
"""Do the work of one size once; seconds."""

LADDER: tuple[int, ...] = (16, 32, 48, *range(64, 2049, 64))
"""Edges of the square matrices that may be measured."""

REPEATS, LEAST_REPEATS = 7, 3
ENOUGH_S = 0.05
"""Of repeating one size: beyond it the fewest repeats will do, long work is steady work."""
ROUNDS = 2
CLEAR_WINS, CLEARLY = 2, 2.0
"""So many doubled sizes won in a row, the last by that factor, end the climb."""
LONGEST_S = 0.4
"""No size is climbed to whose two products would probably take longer than this."""
CUBIC = 3


class Allowance(Record):
    """How much measuring the search may ask for. Units: seconds, as the costs say."""

    total_s: float = 2.0
    gpu_s: float = 0.5


class Crossing(Record):
    """What the search found.

    ``n`` is the smallest measured size from which on the GPU won at every measured size; None
    where the CPU won at the largest. ``below`` is the largest size under ``n``, a defeat, None
    where ``n`` is the smallest there is. ``curve`` has every measured size, ascending.
    ``cut_short`` says that the allowance ended the climb: larger sizes may be won.
    """

    n: int | None
    below: int | None
    curve: tuple[Point, ...]
    cut_short: bool = False


class _Taken:
    """All that was measured of one size."""

    def __init__(self) -> None:
        self.cpu_s: list[float] = []
        self.gpu_s: list[float] = []
        self.rounds = 0

    def point(self, n: int) -> Point:
        return Point(n, median(self.cpu_s), median(self.gpu_s))


def crossing(
    cpu_s: Cost,
    gpu_s: Cost,
    ladder: Sequence[int] = LADDER,
    allowance: Allowance | None = None,
) -> Crossing:
    """Search ``ladder``, which ascends and is not empty. Errors: whatever a cost raises."""
    search = _Search(cpu_s, gpu_s, tuple(ladder), allowance or Allowance())
    search.climb()
    while (size := search.next_size()) is not None:
        search.measure(size)
    below, n = search.boundary()
    return Crossing(n, below, search.curve(), search.cut_short)


class _Search:
    def __init__(
        self, cpu_s: Cost, gpu_s: Cost, ladder: tuple[int, ...], allowance: Allowance
    ) -> None:
        self._cost_cpu, self._cost_gpu = cpu_s, gpu_s
        self._ladder = ladder
        self._allowance = allowance
        self._taken: dict[int, _Taken] = {}
        self.cut_short = False

    def measure(self, n: int) -> None:
        """Measure one size once more, CPU and GPU in turn so that drift strikes both alike."""
        taken = self._taken.setdefault(n, _Taken())
        spent_s = 0.0
        for repeat in range(REPEATS):
            if repeat >= LEAST_REPEATS and (spent_s > ENOUGH_S or self._used_up()):
                break
            taken.cpu_s.append(self._cost_cpu(n))
            taken.gpu_s.append(self._cost_gpu(n))
            spent_s += taken.cpu_s[-1] + taken.gpu_s[-1]
        taken.rounds += 1

    def climb(self) -> None:
        """Measure doubled sizes until the GPU is clearly ahead or the next would take too long."""
        for n in _doubled(self._ladder):
            if self._taken:
                if self._clear() or self._predicted(n) > LONGEST_S:
                    break
                self.cut_short = self._used_up()
                if self.cut_short:
                    break
            self.measure(n)

    def next_size(self) -> int | None:
        """Say which size to measure next; None when the boundary stands or the time is up."""
        if self._used_up():
            return None
        below, above = self.boundary()
        if above is not None and (between := self._between(below, above)) is not None:
            return between
        doubtful = (n for n in (below, above) if n is not None)
        return next((n for n in doubtful if self._taken[n].rounds < ROUNDS), None)

    def boundary(self) -> tuple[int | None, int | None]:
        """Give the largest measured size that lost, and the smallest after which none has."""
        above = None
        for point in reversed(self.curve()):
            if not point.gpu_s < point.cpu_s:
                return point.n, above
            above = point.n
        return None, above

    def curve(self) -> tuple[Point, ...]:
        return tuple(self._taken[n].point(n) for n in sorted(self._taken))

    def _between(self, below: int | None, above: int) -> int | None:
        inside = [n for n in self._ladder if (below or 0) < n < above]
        return inside[len(inside) // 2] if inside else None

    def _clear(self) -> bool:
        last = self.curve()[-CLEAR_WINS:]
        won = len(last) == CLEAR_WINS and all(point.gpu_s < point.cpu_s for point in last)
        return won and last[-1].cpu_s > CLEARLY * last[-1].gpu_s

    def _predicted(self, n: int) -> float:
        """Fit an overhead and a cube to the last two sizes: what both products of ``n`` take."""
        curve = self.curve()
        last, before = curve[-1], curve[max(len(curve) - 2, 0)]
        took_s = last.cpu_s + last.gpu_s
        if before.n == last.n:
            return took_s
        grown_s = took_s - before.cpu_s - before.gpu_s
        cube_s = grown_s / (1 - (before.n / last.n) ** CUBIC)
        cube_s = min(max(cube_s, 0.0), took_s)
        return float(took_s - cube_s + cube_s * (n / last.n) ** CUBIC)

    def _used_up(self) -> bool:
        gpu_s = sum(sum(taken.gpu_s) for taken in self._taken.values())
        cpu_s = sum(sum(taken.cpu_s) for taken in self._taken.values())
        return gpu_s > self._allowance.gpu_s or cpu_s + gpu_s > self._allowance.total_s


def _doubled(ladder: tuple[int, ...]) -> Iterator[int]:
    """Yield the rungs that at least double, and the last: the whole ladder is looked at."""
    reached = 0
    for n in ladder:
        if n >= 2 * reached or n == ladder[-1]:
            yield n
            reached = n
