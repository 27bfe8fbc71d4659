"""How the measuring itself went: failures, marks, what was left out, when nothing ran. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gpud.core.sample import Flag
from gpud.core.stats import median
from gpud.report.model import Failures, Gap, Left, Lost, Marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.report.model import Stretch
    from gpud.report.rows import Run

LEAST_GAP_S: Final = 600.0
TIMES_USUAL: Final = 5.0
"""A pause is longer than ten minutes and five usual intervals, as the detector has it."""
FEWEST: Final = 10
"""Intervals from which a usual one can be told."""
IN_A_ROW: Final = 2
"""Failed runs without a good one after which a probe counts as lost."""


def failures(runs: Sequence[Run]) -> tuple[Failures, ...]:
    """Count failed runs by GPU, probe and reason, the most frequent first; with the last words."""
    count: Counter[tuple[str | None, str, str]] = Counter()
    last: dict[tuple[str | None, str, str], tuple[float, str]] = {}
    for run in runs:
        if run.failure is not None:
            kind = (run.gpu, run.probe, run.failure[0])
            count[kind] += 1
            last[kind] = (run.at_s, run.failure[1])
    return tuple(
        Failures(gpu, probe, reason, times, *last[gpu, probe, reason])
        for (gpu, probe, reason), times in count.most_common()
    )


def lost(runs: Sequence[Run], stretches: Sequence[Stretch], of: Sequence[int]) -> tuple[Lost, ...]:
    """Find probes that worked under one driver and, under a later one, never did and failed.

    A failure names no GPU where there was none to be had: then it is held against every GPU on
    which that probe had worked. ``of`` is the stretch of each run.
    """
    good: defaultdict[tuple[str | None, str], dict[int, float]] = defaultdict(dict)
    bad: defaultdict[tuple[str | None, str], dict[int, list[Run]]] = defaultdict(dict)
    for run, stretch in zip(runs, of, strict=True):
        if run.failure is None:
            good[run.gpu, run.probe].setdefault(stretch, run.at_s)
        else:
            bad[run.gpu, run.probe].setdefault(stretch, []).append(run)
    found = []
    for (gpu, probe), worked in good.items():
        failed = bad[gpu, probe] | (bad.get((None, probe), {}) if gpu is not None else {})
        for stretch in sorted(failed):
            before = [one for one in worked if one < stretch]
            if not before or stretch in worked or len(failed[stretch]) < IN_A_ROW:
                continue
            first = failed[stretch][0]
            back_s = min((at_s for one, at_s in worked.items() if one > stretch), default=None)
            old, new = stretches[max(before)].driver, stretches[stretch].driver
            reason = first.failure[0] if first.failure is not None else ""
            found.append(
                Lost(gpu, probe, old, new, first.at_s, len(failed[stretch]), reason, back_s)
            )
    return tuple(sorted(found, key=lambda one: (one.since_s, one.probe)))


def marked(runs: Sequence[Run], of: Sequence[int]) -> tuple[Marked, ...]:
    """Give by GPU and stretch which share of the good runs carried a flag."""
    total: Counter[tuple[str, int]] = Counter()
    with_flag: Counter[tuple[str, int, str]] = Counter()
    for run, stretch in zip(runs, of, strict=True):
        if run.failure is None and run.gpu is not None:
            total[run.gpu, stretch] += 1
            for flag in run.flags:
                with_flag[run.gpu, stretch, flag] += 1
    shown = (Flag.BUSY, Flag.LOW, Flag.COLD, Flag.RESUME)
    return tuple(
        Marked(gpu, stretch, n, *(with_flag[gpu, stretch, flag] / n for flag in shown))
        for (gpu, stretch), n in sorted(total.items())
    )


def gaps(runs: Sequence[Run]) -> tuple[Gap, ...]:
    """Find the times in which no run of any probe ended, in the order of time."""
    between = [later.at_s - earlier.at_s for earlier, later in pairwise(runs)]
    onward = [one for one in between if one > 0]
    usual_s = median(onward) if len(onward) >= FEWEST else 0.0
    limit_s = max(LEAST_GAP_S, TIMES_USUAL * usual_s)
    return tuple(
        Gap(earlier.at_s, later.at_s, earlier.boot_id != later.boot_id)
        for earlier, later in pairwise(runs)
        if later.at_s - earlier.at_s > limit_s
    )


def awake_s(runs: Sequence[Run], gaps: Sequence[Gap]) -> float:
    """Give for how long gpud was measuring, in seconds."""
    if not runs:
        return 0.0
    moments = [run.at_s for run in runs]
    return max(0.0, max(moments) - min(moments) - sum(g.until_s - g.since_s for g in gaps))


def left(runs: Sequence[Run], awake_s: float) -> tuple[Left, ...]:
    """Estimate how many runs were left out: by its usual interval each probe has so many due.

    The history keeps runs and not the reasons of those there were not; the metrics count these.
    """
    ended: defaultdict[tuple[str | None, str], list[float]] = defaultdict(list)
    for run in runs:
        ended[run.gpu, run.probe].append(run.at_s)
    found = []
    for (gpu, probe), moments in sorted(ended.items(), key=lambda item: (item[0][1], str(item))):
        onward = [b - a for a, b in pairwise(moments) if b > a]
        if len(onward) >= FEWEST:
            due = max(len(moments), round(awake_s / median(onward)))
            found.append(Left(gpu, probe, len(moments), due))
    return tuple(found)
