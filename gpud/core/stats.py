"""Robust arithmetic on tuples of float. Standard library only; no numpy in the agent.

Quantiles interpolate linearly between order statistics (the same rule as numpy's default), so that
a figure can be checked against any textbook tool.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from gpud.core.sample import Buckets, Sample, Unit

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
    )


def settled(values: Sequence[float], *, runs: int = 3, within: float = 0.02) -> bool:
    """Say whether the last ``runs`` values agree within a relative spread: the clocks are up."""
    recent = values[-runs:]
    return len(recent) == runs and min(recent) > 0 and max(recent) / min(recent) <= 1 + within


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SYMBOLS = {"seconds": "s", "bytes_per_second": "B/s", "flops_per_second": "flop/s", "elements": ""}


def human(value: float, unit: str) -> str:
    """Write a figure in base units with a prefix: 1.23e-05 seconds is ``12.3 µs``."""
    value = float(f"{value:.3g}")  # rounded first: 999.9 us is 1 ms
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{_SYMBOLS[unit]}".rstrip()
    return f"{value / 1e-9:.3g} n{_SYMBOLS[unit]}"
