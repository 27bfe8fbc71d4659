"""Robust arithmetic on tuples of float. Standard library only; no numpy in the agent.

Quantiles interpolate linearly between order statistics (the same rule as numpy's default), so that
a figure can be checked against any textbook tool.
"""

from __future__ import annotations

from gpud.core.sample import Buckets

TYPE_CHECKING = False
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


WHOLE = 100  # percent
FEWEST_USUAL = 8
"""Samples of a level, from which on it is what is usual."""


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


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Give a percentile of an ascending, non-empty sequence; None where no value lies beyond it.

    The 90th and the 10th want ten values, the 99th a hundred: of fewer it would be an end.
    """
    if len(ordered) * min(percent, 100 - percent) < WHOLE:
        return None
    return quantile(ordered, percent / WHOLE)


def median(values: Sequence[float]) -> float:
    """Give the middle of a non-empty sequence in any order."""
    return quantile(sorted(values), 0.5)


def merged(left: Buckets, right: Buckets) -> Buckets:
    """Add two distributions over the same bounds."""
    return Buckets(
        counts=tuple(a + b for a, b in zip(left.counts, right.counts, strict=True)),
        total=left.total + right.total,
    )


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_SYMBOLS = {"seconds": "s", "bytes_per_second": "B/s", "flops_per_second": "flop/s"}


INTEGERS = frozenset({"int8"})
"""Modes whose operations are of integers."""


def human(value: float, unit: str, mode: str | None = None) -> str:
    """Write a figure in base units with a prefix: 1.23e-05 seconds is ``12.3 µs``.

    Elements are those of a square matrix, which people know by its side. The operations of a
    ``mode`` of integers are no flops. A unit that only another release knows stands as it is.
    """
    if unit == "elements":
        side = round(value**0.5)
        return f"{side} x {side}"
    symbol = "op/s" if mode in INTEGERS else _SYMBOLS.get(unit, unit)
    value = float(f"{value:.3g}")  # rounded first: 999.9 us is 1 ms
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{symbol}"
    return f"{value / 1e-9:.3g} n{symbol}"


WHOLE_FROM = 9.95  # percent: from here on no tenth is shown


def compared(slowdown: float) -> str:
    """Say how much slower or faster something is: 1.12 is "12 % slower", 0.97 "3.0 % faster"."""
    change = 100 * abs(slowdown - 1)
    digits = 1 if change < WHOLE_FROM else 0
    if not round(change, digits):
        return "the same"
    return f"{change:.{digits}f} % {'slower' if slowdown > 1 else 'faster'}"
