"""Summary of a run: robust figures, buckets, and the humps of a distribution."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate

from gpud.core.sample import Buckets, Peak, Sample, Unit
from gpud.core.stats import LATENCY_BOUNDS_S, median, percentile, quantile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCK_S = 50e-9
"""What the clock's ticks and the null calls leave open in one latency."""
FEWEST = 250
"""Values from which the shape of a distribution can be told."""
APART = 0.08
LEAST_SHARE = 0.05
VALLEY = 0.1
SPREADS = 4.5
CREST = 20
CORE = 1.25
"""How much further apart two humps may be than those of the core that made them."""


def summarised(
    values: Sequence[float],
    *,
    mode: str,
    unit: Unit,
    null: Sequence[float] = (),
    with_buckets: bool = False,
) -> Sample:
    """Reduce one run to a ``Sample``, subtracting the median of the interleaved null calls.

    Shapes: ``values`` float[n], n >= 1; ``null`` float[m] of the same unit, or empty.
    Errors: ``ValueError`` for no values. A difference below zero is clamped: a launch cannot cost
    less than nothing, and the clock's own noise can make it look so.
    """
    null_ordered = sorted(null)
    floor = quantile(null_ordered, 0.5) if null_ordered else 0.0
    net = sorted(max(value - floor, 0.0) for value in values) if null_ordered else sorted(values)
    return Sample(
        mode=mode,
        unit=unit,
        n=len(net),
        median=quantile(net, 0.5),
        p10=percentile(net, 10),
        p90=percentile(net, 90),
        p99=percentile(net, 99),
        minimum=net[0],
        maximum=net[-1],
        null_median=floor if null_ordered else None,
        null_p99=percentile(null_ordered, 99) if null_ordered else None,
        buckets=bucketed(net) if with_buckets else None,
        peaks=_own_peaks(net, null_ordered),
    )


def bucketed(latencies_s: Sequence[float]) -> Buckets:
    """Count latencies into ``LATENCY_BOUNDS_S``; a value on a bound belongs below it (``le``)."""
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    for latency in latencies_s:
        counts[bisect_left(LATENCY_BOUNDS_S, latency)] += 1
    return Buckets(counts=tuple(counts), total=float(sum(latencies_s)))


def peaks(values: Sequence[float], *, resolution: float = 0.0) -> tuple[Peak, ...]:
    """Find the two humps of a distribution, where there are two: then a mean means nothing.

    The best split in two, by absolute deviations of the logarithm, counts only if either side has
    5 % of the values, the centres are 8 % and three times ``resolution`` apart, and it is a valley:
    further from centre to centre than 4.5 robust deviations of the wider side, or with a place
    between them that is a tenth as crowded as the sparser centre. A heavy tail has neither.
    Shapes: float[n], any order; n < 250 has no shape. Two peaks, ascending, or none. O(n log n).
    """
    if len(values) < FEWEST:
        return ()
    ordered = sorted(values)
    middle = quantile(ordered, 0.5)
    least = max(1, int(LEAST_SHARE * len(ordered)))
    lowest, highest = quantile(ordered[:least], 0.5), quantile(ordered[-least:], 0.5)
    # Centres are no further apart than those of the shares at either end: most runs end here.
    if middle <= 0 or highest < lowest * (1 + APART) or highest - lowest <= 3 * resolution:
        return ()
    # What is below a hundredth of the median, zero above all, is as good as that to a logarithm.
    logs = [math.log(max(value, middle / 100)) for value in ordered]
    cut = _split(logs)
    between = (quantile(logs[:cut], 0.5) + quantile(logs[cut:], 0.5)) / 2
    split = bisect_right(logs, between)  # the cut keeps 5 % on either side, there or not
    if not LEAST_SHARE <= split / len(logs) <= 1 - LEAST_SHARE:
        return ()
    low, high = quantile(ordered[:split], 0.5), quantile(ordered[split:], 0.5)
    if high < low * (1 + APART) or high - low <= 3 * resolution:
        return ()
    centres = quantile(logs[:split], 0.5), quantile(logs[split:], 0.5)
    spread = max(_deviation(logs[:split], centres[0]), _deviation(logs[split:], centres[1]))
    if centres[1] - centres[0] <= SPREADS * spread and not _parted(logs, centres):
        return ()
    share = split / len(ordered)
    return Peak(low, share), Peak(high, 1 - share)


def _own_peaks(net: Sequence[float], null: Sequence[float]) -> tuple[Peak, ...]:
    """Find the humps of net latencies that are not those of the core they were measured on.

    Without null calls it is no host latency: a rate, or an interval of a coarser clock. Null calls
    with two humps are a core that has changed its speed in the middle of the run; that explains
    humps as far apart as theirs, and none that are further.
    """
    humps = peaks(net, resolution=CLOCK_S) if null else ()
    core = peaks(null, resolution=CLOCK_S) if humps else ()
    return () if core and _ratio(humps) <= CORE * _ratio(core) else humps


def _ratio(humps: tuple[Peak, ...]) -> float:
    low, high = humps[0].value, humps[-1].value
    return high / low if low > 0 else math.inf


def _split(ordered: Sequence[float]) -> int:
    """Give how many values are below the best cut, at least ``LEAST_SHARE`` on either side.

    In ascending values the sum of absolute deviations from a slice's median is the sum of its upper
    half less that of its lower half: with running sums, every cut costs the same.
    """
    sums, count = [0.0, *accumulate(ordered)], len(ordered)
    edge = max(1, math.ceil(LEAST_SHARE * count))

    def cost(cut: int) -> float:
        low, high = cut // 2, (count - cut) // 2
        below = sums[cut] - sums[cut - low] - sums[low]
        return below + (sums[count] - sums[count - high] - (sums[cut + high] - sums[cut]))

    return min(range(edge, count - edge + 1), key=cost)


def _deviation(ordered: Sequence[float], centre: float) -> float:
    """Give the median absolute deviation, scaled to a normal distribution's standard deviation."""
    return 1.4826 * median([abs(value - centre) for value in ordered])


def _parted(ordered: Sequence[float], centres: tuple[float, float]) -> bool:
    """Say whether some stretch between the centres is nearly empty beside both of them."""
    low, high = centres
    width = (high - low) / 8

    def crowd(place: float) -> int:
        return bisect_right(ordered, place + width / 2) - bisect_left(ordered, place - width / 2)

    crest = min(crowd(low), crowd(high))
    sparsest = min(crowd(low + step * width) for step in range(2, 7))
    return crest >= CREST and sparsest <= VALLEY * crest
