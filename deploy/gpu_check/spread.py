"""Figures of gpud's probes under several conditions: within and between contexts, and changed.

Nothing is set on the GPU: every change is one that a user's own programs can bring about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Any

from . import workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .prepared import Study
    from .processes import Run

CONTEXTS, SAMPLES = 6, 5
ROUNDS = 4
PROBES = ("launch", "small_copy", "triad", "matmul", "copy")
START = ("init_s", "context_s", "module_load_s")
"""Conditions of a run that are figures as well: what the start of a context takes."""
AS_IT_IS, COMPETING = "nothing changed", "another program computes"
NO_BOOST, NO_CACHE = "CUDA_DISABLE_PERF_BOOST=1", "no compiled kernels in the cache"
LEAST_CHANGE = 0.02

Groups = dict[str, list[list[float]]]
"""By metric: the medians of the runs of each context."""


@dataclass(frozen=True, slots=True)
class Components:
    """How a metric varies, as shares of its mean. ``between``: beside what varies within.

    ``first``: the first sample of a context over the median of its later ones.
    """

    mean: float
    within: float
    between: float
    first: float


def components(groups: Sequence[Sequence[float]]) -> Components:
    """Take the variance apart: a one-way analysis over contexts of equally many samples."""
    size = len(groups[0])
    means = [fmean(group) for group in groups]
    mean = fmean(means)
    within = fmean(variance(group) for group in groups)
    between = max(variance(means) - within / size, 0.0)
    first = median(group[0] / median(group[1:]) for group in groups)
    return Components(mean, math.sqrt(within) / mean, math.sqrt(between) / mean, first)


def contexts_compared(study: Study) -> dict[str, Components]:
    """Compare several samples in one context with those of other contexts."""
    groups: Groups = {}
    there = study.there
    specs = [there.specs[name] for name in PROBES]
    for number in range(CONTEXTS):
        study.say(f"context {number + 1} of {CONTEXTS}: {SAMPLES} runs of each probe")
        jobs = [(spec, study.seed + number) for _ in range(SAMPLES) for spec in specs]
        context: dict[str, list[float]] = {}
        for (spec, _), run in zip(jobs, there.child.runs(jobs, there.uuid), strict=True):
            for mode, figure in run.figures.items():
                context.setdefault(f"{spec['name']}.{mode}", []).append(figure.median)
        for metric, values in context.items():
            groups.setdefault(metric, []).append(values)
    whole = {
        metric: [values for values in group if len(values) == SAMPLES]
        for metric, group in groups.items()
    }
    return {metric: components(group) for metric, group in whole.items() if len(group) > 1}


def changes(study: Study) -> dict[str, Any]:
    """Run the probes under each change in turn, several rounds; which metrics move, and how far."""
    figures: dict[str, dict[str, list[float]]] = {}
    clocks: dict[str, list[dict[str, float]]] = {}
    failures: dict[str, list[str]] = {}
    there = study.there
    with workload.prepared(there, study.seed) as program:
        for number in range(ROUNDS):
            study.say(f"changes, round {number + 1} of {ROUNDS}")
            for change, environment in _environments(study.folder, number).items():
                if change == COMPETING:
                    program.start()
                jobs = [(there.specs[name], study.seed + number) for name in PROBES]
                first_s = workload.now_s()
                runs = there.child.runs(jobs, there.uuid, **environment)
                clocks.setdefault(change, []).append(
                    study.clocks.between(first_s, workload.now_s())
                )
                program.stop()
                for name, run in zip(PROBES, runs, strict=True):
                    _add(figures.setdefault(change, {}), name, run)
                    if run.failure:
                        failures.setdefault(change, []).append(f"{name}: {run.failure}")
    usual = figures.pop(AS_IT_IS)
    return {
        "clocks": clocks,
        "failures": failures,
        "moved": {change: moved(usual, values) for change, values in figures.items()},
        "figures": {AS_IT_IS: usual, **figures},
    }


def _environments(folder: Path, number: int) -> dict[str, dict[str, str]]:
    return {
        AS_IT_IS: {},
        COMPETING: {},
        NO_BOOST: {"CUDA_DISABLE_PERF_BOOST": "1"},
        NO_CACHE: {"CUDA_CACHE_PATH": str(folder / f"empty-{number}")},
    }


def _add(figures: dict[str, list[float]], probe: str, run: Run) -> None:
    for mode, figure in run.figures.items():
        figures.setdefault(f"{probe}.{mode}", []).append(figure.median)
    for name in START:
        value = run.conditions.get(name)
        if isinstance(value, float) and value > 0:
            figures.setdefault(f"{probe}.{name}", []).append(value)


def moved(
    usual: Mapping[str, Sequence[float]], changed: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Give the ratio of the medians for every metric whose ranges do not touch, 2 % at least."""
    ratios = {}
    for metric, values in changed.items():
        before = usual.get(metric)
        if not before or len(values) < 2 or len(before) < 2:  # noqa: PLR2004  # no range
            continue
        ratio = median(values) / median(before)
        apart = min(values) > max(before) or max(values) < min(before)
        if apart and abs(ratio - 1) >= LEAST_CHANGE:
            ratios[metric] = ratio
    return ratios
