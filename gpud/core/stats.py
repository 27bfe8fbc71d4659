"""Robust arithmetic on tuples of float. Standard library only; no numpy in the agent.

Quantiles interpolate linearly between order statistics (the same rule as numpy's default), so that
a figure can be checked against any textbook tool.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from gpud.core.sample import Buckets, Peak, Sample, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence


def _latency_bounds() -> tuple[float, ...]:
    # Ratio 1.25 from 1 us to past 200 us keeps the p50 read from buckets within 1.1 %; above that
    # decades are enough. Fixed for ever: mixed layouts do not aggregate across hosts.
    fine = tuple(float(f"{1e-6 * 1.25**step:.3g}") for step in range(25))
    coarse = (300e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3, 1.0)
    return (*fine, *coarse)


LATENCY_BOUNDS_S = _latency_bounds()
"""Upper bounds (inclusive) of the submission latency buckets, in seconds; +Inf is implied."""


def quantile(ordered: Sequence[float], q: float) -> float:
    """Give the ``q`` quantile of an ascending, non-empty sequence.

    Errors: ``ValueError`` for an empty sequence or ``q`` outside 0..1.
    """
    if not ordered:
        raise ValueError("a quantile needs at least one value")
    if not 0 <= q <= 1:
        raise ValueError(f"q must lie in 0..1, not {q}")
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    # The clamp keeps rounding from stepping outside the pair: quantiles must stay monotonic in q.
    return min(max(low + (high - low) * (position - below), low), high)


def median(values: Sequence[float]) -> float:
    """Give the middle of a non-empty sequence in any order."""
    return quantile(sorted(values), 0.5)


def bucketed(latencies_s: Sequence[float]) -> Buckets:
    """Count latencies into ``LATENCY_BOUNDS_S``; a value on a bound belongs below it (``le``)."""
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    for latency in latencies_s:
        counts[bisect_left(LATENCY_BOUNDS_S, latency)] += 1
    return Buckets(counts=tuple(counts), total=float(sum(latencies_s)))


def merged(left: Buckets, right: Buckets) -> Buckets:
    """Add two distributions over the same bounds."""
    return Buckets(
        counts=tuple(a + b for a, b in zip(left.counts, right.counts, strict=True)),
        total=left.total + right.total,
    )


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
        p10=quantile(net, 0.1),
        p90=quantile(net, 0.9),
        p99=quantile(net, 0.99),
        minimum=net[0],
        maximum=net[-1],
        null_median=floor if null_ordered else None,
        null_p99=quantile(null_ordered, 0.99) if null_ordered else None,
        buckets=bucketed(net) if with_buckets else None,
        peaks=_own_peaks(net, null_ordered),
    )


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
    if middle <= 0:
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
    sums = [0.0, *accumulate(ordered)]

    def cost(first: int, last: int) -> float:
        half = (last - first) // 2
        return sums[last] - sums[last - half] - (sums[first + half] - sums[first])

    count = len(ordered)
    edge = max(1, math.ceil(LEAST_SHARE * count))
    return min(range(edge, count - edge + 1), key=lambda cut: cost(0, cut) + cost(cut, count))


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


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SYMBOLS = {"seconds": "s", "bytes_per_second": "B/s", "flops_per_second": "flop/s"}


def human(value: float, unit: str) -> str:
    """Write a figure in base units with a prefix: 1.23e-05 seconds is ``12.3 µs``.

    Elements are those of a square matrix, which people know by its side.
    """
    if unit == "elements":
        side = round(value**0.5)
        return f"{side} x {side}"
    value = float(f"{value:.3g}")  # rounded first: 999.9 us is 1 ms
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{_SYMBOLS[unit]}"
    return f"{value / 1e-9:.3g} n{_SYMBOLS[unit]}"


WHOLE_FROM = 9.95  # percent: from here on no tenth is shown


def compared(slowdown: float) -> str:
    """Say how much slower or faster something is: 1.12 is "12 % slower", 0.97 "3.0 % faster"."""
    change = 100 * abs(slowdown - 1)
    digits = 1 if change < WHOLE_FROM else 0
    if not round(change, digits):
        return "the same"
    return f"{change:.{digits}f} % {'slower' if slowdown > 1 else 'faster'}"
