"""The outcome of ``gpud probe``: what came in, and what its runs say together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from gpud.core.requests import InventoryLine, NoHistoryLine, NotRunLine, RanLine, RefusedLine
from gpud.core.sample import SCHEMA_VERSION, Inventory, Unit
from gpud.core.stats import median

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.core.requests import AnswerLine
    from gpud.core.sample import Failure, Sample

FEWEST_RUNS: Final = 5
"""Fewer runs in the history are no baseline."""


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


@dataclass(slots=True)
class Outcome:
    """What came in so far: an interrupted person gets to see it too."""

    repeats: int = 1
    runs: list[RanLine] = field(default_factory=list)
    not_run: list[NotRunLine] = field(default_factory=list)
    inventory: Inventory | None = None
    no_gpu: str | None = None  # why no GPU is expected here, where none was asked for
    no_history: str | None = None  # why there is no history to compare with
    refused: dict[str, str] = field(default_factory=dict)  # probe modules that do not load
    interrupted: bool = False

    def take(self, line: AnswerLine) -> None:
        """Take in a line of the answer."""
        match line:
            case RanLine():
                self.runs.append(line)
            case NotRunLine():
                self.not_run.append(line)
            case InventoryLine():
                self.inventory, self.no_gpu = line.inventory, line.no_gpu
            case NoHistoryLine():
                self.no_history = line.reason
            case RefusedLine():
                self.refused = line.refused

    @property
    def good(self) -> bool:
        """Whether everything that was asked for brought its figures."""
        failed = any(ran.report.failure is not None for ran in self.runs)
        return not (failed or self.not_run or self.refused or self.cuda_failure)

    @property
    def cuda_failure(self) -> Failure | None:
        """Why no GPU was measured at all; None where there is none to measure."""
        if self.inventory is None or self.no_gpu is not None:
            return None
        return self.inventory.failure

    def by_mode(self) -> Iterator[tuple[RanLine, Sequence[Sample]]]:
        """Give the samples of each probe, place and mode, with the first run that has it."""
        firsts: dict[tuple[int | None, str, str], RanLine] = {}
        samples: dict[tuple[int | None, str, str], list[Sample]] = {}
        for ran in self.runs:
            for sample in ran.report.samples:
                key = (ran.gpu, ran.report.probe, sample.mode)
                firsts.setdefault(key, ran)
                samples.setdefault(key, []).append(sample)
        yield from ((firsts[key], together) for key, together in samples.items())

    def results(self) -> list[Result]:
        """Give a result for each mode (two for one with two modes), in the order they came in."""
        collected: list[Result] = []
        for ran, samples in self.by_mode():
            # Runs that saw one mode and runs that saw two: between them lies no middle.
            for count in sorted({len(sample.peaks) for sample in samples}):
                alike = [sample for sample in samples if len(sample.peaks) == count]
                collected += _two_modes(ran, alike) if count else [self._single_mode(ran, alike)]
        return collected

    def document(self) -> dict[str, Any]:
        """Give every run as its child reported it, and the results, as ``--json`` prints them."""
        return {
            "schema_version": SCHEMA_VERSION,
            "interrupted": self.interrupted,
            "repeat": self.repeats,
            "cuda": asdict(self.inventory) if self.inventory is not None else None,
            "results": [{**asdict(each), "spread": each.spread} for each in self.results()],
            "runs": [
                {"repeat": ran.repeat, "gpu": ran.gpu, **asdict(ran.report)} for ran in self.runs
            ],
            "not_run": [structs.asdict(missed) for missed in self.not_run],
            "refused": self.refused,
            "no_history": self.no_history,
        }

    def _single_mode(self, ran: RanLine, samples: Sequence[Sample]) -> Result:
        medians = [sample.median for sample in samples]
        first, low, high = samples[0], None, None
        if len(medians) > 1:
            low, high = min(medians), max(medians)
        elif first.n > 1 and self.repeats == 1:  # of several, one says nothing of their spread
            low, high = first.p10, first.p90
        value = median(medians)
        baseline = self._against(ran, first.mode, value)
        return Result(
            probe=ran.report.probe,
            gpu=ran.gpu,
            mode=first.mode,
            unit=first.unit,
            runs=len(samples),
            n=sum(sample.n for sample in samples),
            value=value,
            low=low,
            high=high,
            baseline=baseline if isinstance(baseline, Baseline) else None,
            no_baseline=baseline if isinstance(baseline, str) else None,
        )

    def _against(self, ran: RanLine, mode: str, value: float) -> Baseline | str:
        """Compare with the history, or give the reason why that is not possible."""
        if self.no_history is not None:
            return self.no_history
        if not isinstance(ran.report.conditions.get("probe_version"), int):
            return "the run does not say its version"
        usual = ran.usual.get(mode)
        n = 0 if usual is None else usual.n
        if usual is None or n < FEWEST_RUNS:
            return f"{n} runs are kept, {FEWEST_RUNS} are needed"
        if usual.median <= 0:
            return "the history says 0"
        return Baseline(usual.median, n, value / usual.median - 1.0)


def _two_modes(ran: RanLine, samples: Sequence[Sample]) -> Iterator[Result]:
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
