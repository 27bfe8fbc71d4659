"""What a by-hand run brought, and what its runs say together: pure, with the history as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpud.agent.history_read import Past, Series
from gpud.core.stats import median, merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.core.presence import Nothing
    from gpud.core.sample import Buckets, Device, Failure, Inventory, RunReport, Sample, Skip, Unit

FEWEST_RUNS = 5
"""Fewer runs in the history are no baseline."""

FEWEST_CALLS = 20
"""Fewer calls have no shape to draw."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run. ``gpu`` is an index, None for the CPU; ``repeat`` counts from 1."""

    repeat: int
    gpu: int | None
    report: RunReport


@dataclass(frozen=True, slots=True)
class NotRun:
    """A run that was not started, and why."""

    repeat: int
    gpu: int | None
    probe: str
    skip: Skip
    detail: str
    fix: str | None = None


@dataclass(slots=True)
class Outcome:
    """What came in so far: an interrupted person gets to see it too."""

    runs: list[Ran] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)
    inventory: Inventory | None = None
    no_gpu: Nothing | None = None  # why no GPU is expected here, where nobody asked for one
    past: Past = field(default_factory=Past)
    no_past: str | None = None  # why there is no history to compare with
    refused: dict[str, str] = field(default_factory=dict)  # probe modules that do not load
    repeats: int = 1
    running: str | None = None  # the run that has begun and not ended
    interrupted: bool = False

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs there are, none where CUDA refuses."""
        return self.inventory.devices if self.inventory is not None else ()

    @property
    def cuda_failure(self) -> Failure | None:
        """Why no GPU was measured at all; None where there is none to measure."""
        if self.inventory is None or self.no_gpu is not None:
            return None
        return self.inventory.failure

    @property
    def good(self) -> bool:
        """Whether everything that was asked for brought its figures."""
        failed = any(ran.report.failure is not None for ran in self.runs)
        return not (failed or self.not_run or self.refused or self.cuda_failure)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The median of the kept history and how many runs that is; ``ratio`` 0.03 is 3 % above it."""

    median: float
    n: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Result:
    """One mode of one probe in one place, over all its repeats.

    Units: the probe's own. ``low`` and ``high`` are p10 and p90 of the calls of one run, or the
    lowest and highest median of several; None where there is one call. A distribution with two
    modes is two results, each with the ``share`` of its calls: a mean of them is no figure.
    ``no_baseline`` is the reason where there is none.
    """

    probe: str
    gpu: int | None
    mode: str
    unit: Unit
    runs: int
    n: int
    value: float
    low: float | None
    high: float | None
    share: float | None = None
    baseline: Baseline | None = None
    no_baseline: str | None = None

    @property
    def spread(self) -> float | None:
        """Give ``high - low`` as a share of the value; None where it says nothing."""
        if self.low is None or self.high is None or self.value <= 0:
            return None
        return (self.high - self.low) / self.value


@dataclass(frozen=True, slots=True)
class Latencies:
    """The launch latencies of one mode on one GPU, of all repeats together."""

    probe: str
    gpu: int | None
    mode: str
    n: int
    median: float
    p99: float
    maximum: float
    buckets: Buckets


def results(outcome: Outcome) -> list[Result]:
    """Give a result for each mode (two for one with two modes), in the order they came in."""
    found: list[Result] = []
    for ran, samples in _by_mode(outcome):
        # Runs that saw one mode and runs that saw two are told apart: between them lies no middle.
        for count in sorted({len(sample.peaks) for sample in samples}):
            alike = [sample for sample in samples if len(sample.peaks) == count]
            if count:
                found += _two_modes(ran, alike)
            else:
                found.append(_one_mode(outcome, ran, alike))
    return found


def latencies(outcome: Outcome) -> list[Latencies]:
    """Give the distributions there are, those of several runs added up."""
    found: list[Latencies] = []
    for ran, samples in _by_mode(outcome):
        together: Buckets | None = None
        for sample in samples:
            if sample.buckets is not None:
                together = sample.buckets if together is None else merged(together, sample.buckets)
        if together is not None and sum(together.counts) >= FEWEST_CALLS:
            found.append(
                Latencies(
                    probe=ran.report.probe,
                    gpu=ran.gpu,
                    mode=samples[0].mode,
                    n=sum(together.counts),
                    median=median([sample.median for sample in samples]),
                    p99=median([sample.p99 for sample in samples]),
                    maximum=max(sample.maximum for sample in samples),
                    buckets=together,
                )
            )
    return found


def _by_mode(outcome: Outcome) -> Iterator[tuple[Ran, Sequence[Sample]]]:
    """Give the samples of each (probe, place, mode), with the first run that has it."""
    firsts: dict[tuple[int | None, str, str], Ran] = {}
    together: dict[tuple[int | None, str, str], list[Sample]] = {}
    for ran in outcome.runs:
        for sample in ran.report.samples:
            key = (ran.gpu, ran.report.probe, sample.mode)
            firsts.setdefault(key, ran)
            together.setdefault(key, []).append(sample)
    yield from ((firsts[key], samples) for key, samples in together.items())


def _one_mode(outcome: Outcome, ran: Ran, samples: Sequence[Sample]) -> Result:
    value = median([sample.median for sample in samples])
    low, high = _range([sample.median for sample in samples], samples[0], outcome.repeats)
    baseline, no_baseline = _against(outcome, ran, samples[0].mode, value)
    return Result(
        probe=ran.report.probe,
        gpu=ran.gpu,
        mode=samples[0].mode,
        unit=samples[0].unit,
        runs=len(samples),
        n=sum(sample.n for sample in samples),
        value=value,
        low=low,
        high=high,
        baseline=baseline,
        no_baseline=no_baseline,
    )


def _range(
    medians: Sequence[float], first: Sample, repeats: int
) -> tuple[float | None, float | None]:
    if len(medians) > 1:
        return min(medians), max(medians)
    # The only one of several that brought a figure says nothing of the spread between runs.
    return (first.p10, first.p90) if first.n > 1 and repeats == 1 else (None, None)


def _two_modes(ran: Ran, samples: Sequence[Sample]) -> Iterator[Result]:
    ordered = [sorted(sample.peaks, key=lambda peak: peak.value) for sample in samples]
    for peaks in zip(*ordered, strict=True):
        values = [peak.value for peak in peaks]
        several = len(values) > 1
        yield Result(
            probe=ran.report.probe,
            gpu=ran.gpu,
            mode=samples[0].mode,
            unit=samples[0].unit,
            runs=len(samples),
            n=sum(sample.n for sample in samples),
            value=median(values),
            low=min(values) if several else None,
            high=max(values) if several else None,
            share=median([peak.share for peak in peaks]),
            no_baseline="two modes",
        )


def _against(
    outcome: Outcome, ran: Ran, mode: str, value: float
) -> tuple[Baseline | None, str | None]:
    """Compare with the history of the same GPU, probe, mode and version of the probe."""
    if outcome.no_past is not None:
        return None, outcome.no_past
    report = ran.report
    version = report.conditions.get("probe_version")
    if not isinstance(version, int):
        return None, "the run does not say its version"
    uuid = report.device.uuid if report.device is not None else None
    kept = outcome.past.medians.get(Series(uuid, report.probe, mode, version), ())
    if len(kept) < FEWEST_RUNS:
        return None, f"{len(kept)} runs are kept, {FEWEST_RUNS} are needed"
    usual = median(kept)
    if usual <= 0:
        return None, "the history says 0"
    return Baseline(usual, len(kept), value / usual - 1.0), None
