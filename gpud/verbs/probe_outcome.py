"""The outcome of ``gpud probe``: what came in, its results, and both as a document and as text."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from gpud import output
from gpud.core.sample import SCHEMA_VERSION, Inventory, Unit
from gpud.core.stats import FEWEST_USUAL, LATENCY_BOUNDS_S, human, median, merged
from gpud.core.text import escaped
from gpud.requests import InventoryLine, NoHistoryLine, NotRunLine, RanLine, RefusedLine
from gpud.show import model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.core.sample import Buckets, Failure, Peak, Sample
    from gpud.requests import AnswerLine

FEWEST_CALLS: Final = 20
"""Fewer calls have no distribution to show."""
COLUMNS: Final = ("probe", "mode", "value", "spread", "baseline")
LONGEST_BAR: Final = 40
LEGEND: Final = (
    "value: median of the calls, or of the runs' medians; spread: from p10 to p90, or",
    "from the lowest run to the highest, as a share of it; baseline: median of n runs",
    "of the last 30 days, same GPU, probe, version and power (mains or battery)",
)


@dataclass(frozen=True, slots=True)
class ProbeBaseline:
    """The median of the kept history and how many runs that is; ``ratio`` 0.03 is 3 % above it."""

    median: float
    n: int
    ratio: float


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One mode of one probe in one place, over all its repeats.

    Units: the probe's own. ``low`` and ``high`` of one run are p10 and p90 of its calls: the lowest
    and the highest of fewer than ten, None of one. Of several runs they are the lowest and the
    highest median. ``peaks`` are those of the last run whose distribution has two modes.
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
    peaks: tuple[Peak, ...] = ()
    baseline: ProbeBaseline | None = None
    no_baseline: str | None = None

    @property
    def spread(self) -> float | None:
        """``high - low`` as a share of the value; None where it means nothing."""
        if self.low is None or self.high is None or self.value <= 0:
            return None
        return (self.high - self.low) / self.value


@dataclass(slots=True)
class ProbeOutcome:
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

    def by_mode(self) -> list[tuple[RanLine, list[Sample]]]:
        """Return the samples of each probe, place and mode, with the first run that has it."""
        modes: dict[tuple[int | None, str, str], tuple[RanLine, list[Sample]]] = {}
        for ran in self.runs:
            for sample in ran.report.samples:
                key = (ran.gpu, ran.report.probe, sample.mode)
                modes.setdefault(key, (ran, []))[1].append(sample)
        return list(modes.values())

    def results(self) -> list[ProbeResult]:
        """Return a result for each mode, in the order they came in."""
        return [self._result(ran, samples) for ran, samples in self.by_mode()]

    def document(self) -> dict[str, Any]:
        """Return every run as its child reported it, and the results, as ``--json`` prints them."""
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

    def brief(self, ran: RanLine) -> str:
        """Return what one run brought in a line, each figure beside its baseline."""
        if ran.report.failure is not None:
            return f"failed: {ran.report.failure.reason}"
        alone = ProbeOutcome(runs=[ran], no_history=self.no_history)
        cells = (_cells(result)[:2] + _ratio(result) for result in alone.results())
        return ", ".join(" ".join(each) for each in cells)

    def lines(self) -> list[str]:
        """Return the text for a person. No control character of a foreign text is left."""
        parts = (_table(self), _distributions(self), _failures(self))
        return [line for part in parts if (texts := list(part)) for line in ("", *texts)][1:]

    def _result(self, ran: RanLine, samples: Sequence[Sample]) -> ProbeResult:
        medians = [sample.median for sample in samples]
        first, low, high = samples[0], None, None
        if len(medians) > 1:
            low, high = min(medians), max(medians)
        elif first.n > 1 and self.repeats == 1:  # of several, one says nothing of their spread
            low = first.minimum if first.p10 is None else first.p10
            high = first.maximum if first.p90 is None else first.p90
        baseline = self._against(ran, first.mode, median(medians))
        return ProbeResult(
            probe=ran.report.probe,
            gpu=ran.gpu,
            mode=first.mode,
            unit=first.unit,
            runs=len(samples),
            n=sum(sample.n for sample in samples),
            value=median(medians),
            low=low,
            high=high,
            peaks=next((sample.peaks for sample in reversed(samples) if sample.peaks), ()),
            baseline=baseline if isinstance(baseline, ProbeBaseline) else None,
            no_baseline=baseline if isinstance(baseline, str) else None,
        )

    def _against(self, ran: RanLine, mode: str, value: float) -> ProbeBaseline | str:
        """Compare with the history, or return the reason why that is not possible."""
        if self.no_history is not None:
            return "no history"
        usual = ran.usual.get(mode)
        n = 0 if usual is None else usual.n
        if usual is None or n < FEWEST_USUAL:
            on_battery = ran.report.conditions.get("after.ac") is False
            return f"{n} of {FEWEST_USUAL} runs{' on battery' if on_battery else ''}"
        if usual.median <= 0:
            return "the history says 0"
        return ProbeBaseline(usual.median, n, value / usual.median - 1.0)


def _ratio(result: ProbeResult) -> tuple[str, ...]:
    return () if result.baseline is None else (f"{100 * result.baseline.ratio:+z.1f} %",)


def _table(outcome: ProbeOutcome) -> Iterator[str]:
    """Write the results in a table for each place."""
    results = outcome.results()
    devices = () if outcome.inventory is None else outcome.inventory.devices
    names = {None: "CPU"} | {each.index: f"GPU {each.index}  {each.name}" for each in devices}
    columns = model.headings(*COLUMNS, numbers=COLUMNS[2:])
    for gpu in dict.fromkeys(result.gpu for result in results):
        rows, previous = [], ""
        for result in (result for result in results if result.gpu == gpu):
            rows.append(("" if result.probe == previous else result.probe, *_cells(result)))
            previous = result.probe
        card = model.Card("", names.get(gpu, f"GPU {gpu}"), [model.listing(columns, rows)])
        yield from output.drawn(card).splitlines()
    if results:
        yield from LEGEND
    if outcome.no_history is not None:
        yield f"no baseline: {escaped(outcome.no_history)}"


def _cells(result: ProbeResult) -> tuple[str, ...]:
    unit, peaks = result.unit, result.peaks
    modes = ", ".join(f"{human(p.value, unit)} {100 * p.share:.0f} %" for p in peaks)
    value = modes or human(result.value, unit, result.mode)
    spread = "" if result.spread is None else f"{100 * result.spread:.1f} %"
    against = result.no_baseline or "-"
    if result.baseline is not None:
        against = f"{_ratio(result)[0]} (n {result.baseline.n})"
    return result.mode, value, spread, against


def _distributions(outcome: ProbeOutcome) -> Iterator[str]:
    for ran, samples in outcome.by_mode():
        buckets = [sample.buckets for sample in samples if sample.buckets is not None]
        if buckets and sum(sum(each.counts) for each in buckets) >= FEWEST_CALLS:
            yield f"{escaped(ran.report.probe)} {escaped(samples[0].mode)}{_on(ran.gpu)}"
            yield from _distribution(samples, buckets)


def _distribution(samples: Sequence[Sample], buckets: Sequence[Buckets]) -> Iterator[str]:
    """Draw a bar for each bucket that holds a call, as long as the logarithm of its count."""
    together = buckets[0]
    for each in buckets[1:]:
        together = merged(together, each)
    figures = {"p50": [sample.median for sample in samples]}
    figures["p99"] = [sample.p99 for sample in samples if sample.p99 is not None]
    figures["max"] = [max(sample.maximum for sample in samples)]
    named = [f"{name} {human(median(each), 'seconds')}" for name, each in figures.items() if each]
    words = f"{', '.join(named)} (bars are logarithmic)"
    total, most = sum(together.counts), max(together.counts)
    yield f"  {total} calls: {words}"
    bounds = [f"≤ {human(bound, 'seconds')}" for bound in LATENCY_BOUNDS_S]
    bounds.append(f"> {human(LATENCY_BOUNDS_S[-1], 'seconds')}")
    for bound, count in zip(bounds, together.counts, strict=True):
        if count:
            bar = "#" * max(1, round(LONGEST_BAR * math.log1p(count) / math.log1p(most)))
            share = f"{100 * count / total:.1f} %" if count >= total / 1000 else "<0.1 %"
            yield f"{bound:>10}  {bar:<{LONGEST_BAR}}{count:>7}{share:>8}"


def _failures(outcome: ProbeOutcome) -> Iterator[str]:
    """Describe what brought no figure and why, the same words once."""
    if outcome.no_gpu is not None:
        yield f"no GPU was measured: {escaped(outcome.no_gpu)}"
    alike: defaultdict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for kind, name, detail, fix in _troubles(outcome):
        alike[kind, detail, fix].append(escaped(name))
    for (kind, detail, fix), names in alike.items():
        yield f"{kind}: {', '.join(dict.fromkeys(names))}: {escaped(detail)}"
        if fix:
            yield f"  fix: {escaped(fix)}"


def _troubles(outcome: ProbeOutcome) -> Iterator[tuple[str, str, str, str | None]]:
    failures = [("CUDA", outcome.cuda_failure)]
    failures += [(f"{ran.report.probe}{_on(ran.gpu)}", ran.report.failure) for ran in outcome.runs]
    for name, failure in failures:
        if failure is not None:
            yield "failed", name, f"{failure.reason}: {failure.detail}", failure.advice
    for name, reason in outcome.refused.items():
        yield "failed", name, f"does not load: {reason}", None
    for missed in outcome.not_run:
        yield "not run", f"{missed.probe}{_on(missed.gpu)}", missed.detail, missed.fix
    for ran in outcome.runs:
        place = _on(ran.gpu)
        for gap in ran.report.missing:
            name = f"{ran.report.probe} {gap.mode}{place}"
            yield "missing", name, f"{gap.reason}: {gap.detail}", None
        if ran.report.conditions.get("settled") is False:
            detail = "the clocks had not settled when the warm-up ended"
            yield "unsettled", f"{ran.report.probe}{place}", detail, None


def _on(gpu: int | None) -> str:
    return "" if gpu is None else f" on GPU {gpu}"
