"""Published methods and plain rules on the same streams. None of them is a dependency of gpud.

    python -m venv /tmp/anchors; /tmp/anchors/bin/pip install ruptures river
    python -m venv /tmp/otava; /tmp/otava/bin/pip install apache-otava
    .venv/bin/python benchmarks/detect.py --python /tmp/anchors/bin/python --python PATH...

Apache Otava pins an older numpy than river wants, so it lives in an environment of its own. What
cannot be imported anywhere is shown with the figures that were recorded for it, marked as such.
"""

from __future__ import annotations

import math
from statistics import fmean, median, pstdev, variance
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.detection.made import Stream
    from benchmarks.detection.score import Detect


RECORDED: dict[tuple[str, str], tuple[float, float, float, float, float, str]] = {
    # precision, recall, F1, delay, false alarms per 1,000, null updates
    ("Otava, last 200", "made"): (0.04, 0.98, 0.08, 8, 10.710, "42/46"),
    ("Otava, last 200", "made, power"): (0.09, 0.91, 0.17, 5, 4.411, "36/46"),
    ("Otava, last 200", "recorded"): (0.30, 0.75, 0.42, 4, 1.872, "4/21"),
    ("PELT, last 200", "made"): (0.10, 0.98, 0.18, 12, 4.422, "28/46"),
    ("PELT, last 200", "made, power"): (0.27, 0.91, 0.42, 13, 1.186, "8/46"),
    ("PELT, last 200", "recorded"): (0.72, 0.71, 0.72, 9, 0.290, "0/21"),
    ("ADWIN", "made"): (0.73, 0.18, 0.29, 130, 0.032, "1/46"),
    ("ADWIN", "made, power"): (0.75, 0.07, 0.12, 114, 0.011, "1/46"),
    ("ADWIN", "recorded"): (0.50, 0.02, 0.04, 99, 0.019, "1/21"),
    ("Page-Hinkley", "made"): (0.24, 0.60, 0.34, 43, 0.938, "8/46"),
    ("Page-Hinkley", "made, power"): (0.53, 0.56, 0.54, 24, 0.237, "4/46"),
    ("Page-Hinkley", "recorded"): (0.89, 0.31, 0.46, 11, 0.039, "0/21"),
}
"""On the development set of 2026-11, each at one setting, with busy and slow samples left out where
the power state is known."""


def anchors() -> dict[str, Detect | None]:
    """Give every anchor by name; None where its library is not installed."""
    return {
        "20 %, one sample": _clean(one_sample),
        "20 %, 15 against 120": _clean(fifteen),
        "mean + 4 sd of 40": _clean(four_sigma),
        "t-test 12 against 24": _clean(t_test),
        "ADWIN": _clean(adwin) if _has("river") else None,
        "Page-Hinkley": _clean(page_hinkley) if _has("river") else None,
        "PELT, last 200": _clean(pelt) if _has("ruptures") else None,
        "Otava, last 200": _clean(otava) if _has("otava") else None,
    }


def _has(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def _clean(rule: Callable[[list[float], list[str]], list[tuple[int, int, float]]]) -> Detect:
    """Show a rule only the samples without a 'busy' or 'low' flag, and translate back."""

    def detect(stream: Stream, flags: Sequence[str]) -> list[dict[str, Any]]:
        sign = 1 if stream.direction == "lower-is-better" else -1
        keep = [at for at, flag in enumerate(flags) if flag not in {"busy", "low"}]
        logs = [sign * math.log(stream.values[at]) for at in keep]
        found = rule(logs, [stream.context[at] for at in keep])
        return [
            {
                "index": keep[index],
                "change_index": keep[min(change, index)],
                "ratio": math.exp(sign * shift),
            }
            for index, change, shift in found
        ]

    return detect


def one_sample(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """One sample 20 % worse than the median of the 60 before; quiet for 60 after an alarm."""
    found, last = [], -math.inf
    for at in range(60, len(y)):
        shift = y[at] - median(y[at - 60 : at])
        if shift > math.log(1.2) and at - last > 60:
            found.append((at, at, shift))
            last = at
    return found


def fifteen(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """The median of the last 15 is 20 % worse than that of the 120 before; quiet for 120."""
    found, last = [], -math.inf
    for at in range(134, len(y)):
        shift = median(y[at - 14 : at + 1]) - median(y[at - 134 : at - 14])
        if shift > math.log(1.2) and at - last > 120:
            found.append((at, at - 8, shift))
            last = at
    return found


def four_sigma(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """Beyond the mean and four standard deviations of the last 40; quiet for 40."""
    found, last = [], -math.inf
    for at in range(40, len(y)):
        window = y[at - 40 : at]
        shift = y[at] - fmean(window)
        if shift > max(4 * pstdev(window), 0.03) and at - last > 40:
            found.append((at, at, shift))
            last = at
    return found


def t_test(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """Mozilla's Perfherder: 12 samples against up to 24 before, t > 7, at the peak of t."""
    found, last, before = [], -math.inf, 0.0
    for at in range(23, len(y)):
        cut = at - 11
        old, new = y[max(0, cut - 24) : cut], y[cut : at + 1]
        error = math.sqrt(variance(old) / len(old) + variance(new) / len(new) + 1e-18)
        t = (fmean(new) - fmean(old)) / error
        shift = median(new) - median(old)
        if before > 7 and t <= before and cut - last > 12:
            if shift > 0.02:
                found.append((at, cut - 1, shift))
            last = cut
        before = t
    return found


def adwin(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """ADWIN of river with its defaults, asked at each sample; worse by 5 % or more."""
    from river.drift import ADWIN

    found, start, judge = [], 0, ADWIN(clock=1)
    for at, value in enumerate(y):
        judge.update(value)
        if judge.drift_detected:
            cut = max(start + 1, at - int(judge.width) + 1)
            shift = median(y[cut : at + 1]) - median(y[max(start, cut - 120) : cut])
            if shift > math.log(1.05):
                found.append((at, cut, shift))
            start = cut
    return found


def page_hinkley(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """Page-Hinkley of river on values scaled by the MAD of the first 60 after each reset."""
    from river.drift import PageHinkley

    found: list[tuple[int, int, float]] = []
    base, first, judge, centre, sigma = 0, 0, None, 0.0, 1.0
    for at, value in enumerate(y):
        if at - base < 60:
            continue
        if judge is None:
            window = y[base : base + 60]
            centre = median(window)
            sigma = max(0.01, 1.4826 * median(abs(one - centre) for one in window))
            first = at
            judge = PageHinkley(min_instances=20, delta=0.5, threshold=30.0, alpha=1.0, mode="up")
            for one in window:
                judge.update((one - centre) / sigma)
        judge.update(min(6.0, max(-6.0, (value - centre) / sigma)))
        if judge.drift_detected:
            cut = max(first, at - 19)
            shift = median(y[cut : at + 1]) - centre
            if shift > math.log(1.05):
                found.append((at, cut, shift))
            base, judge = at + 1 - min(20, at - first), None
    return found


def pelt(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """PELT of ruptures on MAD-scaled values clipped at 5, again every 8 samples."""
    import numpy as np
    import ruptures

    def find(window: list[float]) -> list[int]:
        centre = median(window)
        sigma = max(0.01, 1.4826 * median(abs(one - centre) for one in window))
        z = np.clip((np.asarray(window) - centre) / sigma, -5, 5).reshape(-1, 1)
        judge = ruptures.Pelt(model="l2", min_size=8, jump=5).fit(z)
        return list(judge.predict(pen=10 * math.log(len(window)))[:-1])

    return _again(y, find)


def otava(y: list[float], _: list[str]) -> list[tuple[int, int, float]]:
    """Apache Otava: window 50, p < 0.001, at least 5 %, again every 8 samples."""
    from otava.analysis import compute_change_points

    def find(window: list[float]) -> list[int]:
        values = [math.exp(one) for one in window]
        points = compute_change_points(values, window_len=50, max_pvalue=0.001, min_magnitude=0.05)
        return [point.index for point in points[0]]

    return _again(y, find)


def _again(
    y: list[float], find: Callable[[list[float]], list[int]]
) -> list[tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []
    seen: list[int] = []
    for at in range(39, len(y), 8):
        start = max(0, at + 1 - 200)
        for place in find(y[start : at + 1]):
            cut = place + start
            if cut - start < 8 or any(abs(cut - one) <= 12 for one in seen):
                continue
            low = max([start, *(one for one in seen if one < cut)])
            shift = median(y[cut : at + 1]) - median(y[low:cut])
            seen.append(cut)
            if shift > math.log(1.05):
                found.append((at, cut, shift))
    return found
