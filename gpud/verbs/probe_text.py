"""The outcome of ``gpud probe`` as plain lines: figures, distributions, and what went wrong."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpud.core.stats import LATENCY_BOUNDS_S, human, median, merged
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpud.core.sample import Buckets, ProbeSpec, Sample
    from gpud.verbs.outcome import Outcome, Result

COLUMNS: Final = ("probe", "mode", "value", "spread", "against baseline")
FROM_TENTHS: Final = 0.0995
"""Below ten percent a tenth of one is shown."""
FEWEST_CALLS: Final = 20
"""Fewer calls have no distribution to show."""
LONGEST_BAR: Final = 40


def listing(specs: Iterable[ProbeSpec], refused: Mapping[str, str]) -> Iterator[str]:
    """List probes with what they may cost, and the modules that do not load."""
    for spec in specs:
        gpu = f", {spec.gpu_budget_s:g} s of it GPU time" if spec.backend == "cuda" else ""
        yield f"{spec.name:<12} {spec.backend:<5} {spec.pace:<6} at most {spec.budget_s:g} s{gpu}"
        yield f"{'':<12} {spec.summary}"
        yield f"{'':<12} modes: {', '.join(spec.modes)}"
    for name, reason in refused.items():
        yield f"{escaped(name):<12} does not load: {escaped(reason)}"


def lines(outcome: Outcome) -> list[str]:
    """Give everything there is to say. No control character of a foreign text is left."""
    parts = (_table(outcome), _distributions(outcome), _troubles(outcome))
    return [line for part in parts if (messages := list(part)) for line in ("", *messages)][1:]


def _table(outcome: Outcome) -> Iterator[str]:
    results = outcome.results()
    if not results:
        return
    rows: defaultdict[int | None, list[tuple[str, ...]]] = defaultdict(list)
    for result in results:
        rows[result.gpu].append(_cells(result))
    every = [COLUMNS, *(row for place in rows.values() for row in place)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    yield _row(COLUMNS, widths)
    devices = () if outcome.inventory is None else outcome.inventory.devices
    names = {device.index: f"GPU {device.index}  {escaped(device.name)}" for device in devices}
    for gpu, place in rows.items():
        yield "CPU" if gpu is None else names.get(gpu, f"GPU {gpu}")
        previous = ""
        for name, *cells in place:
            yield _row(("" if name == previous else name, *cells), widths)
            previous = name
    yield from _legend(outcome, results)


def _cells(result: Result) -> tuple[str, ...]:
    mode = escaped(result.mode)
    if result.share is not None:
        mode = f"{mode} ({100 * result.share:.0f} %)"
    spread = "" if result.spread is None else percent(result.spread)
    against = "-"
    if result.baseline is not None:
        against = f"{percent(result.baseline.ratio, signed=True)} (n {result.baseline.n})"
    return escaped(result.probe), mode, human(result.value, result.unit), spread, against


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [f"{cell:<{size}}" for cell, size in zip(cells[:2], widths[:2], strict=True)]
    right = [f"{cell:>{size}}" for cell, size in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(["", *left, *right]).rstrip()


def percent(ratio: float, *, signed: bool = False) -> str:
    """Write 0.034 as ``3.4 %``, with its sign if that is asked for."""
    digits = 1 if abs(ratio) < FROM_TENTHS else 0
    rounded = round(100 * ratio, digits)
    return f"{rounded + 0.0:{'+' if signed and rounded else ''}.{digits}f} %"  # -0.0 is 0


def _legend(outcome: Outcome, results: Sequence[Result]) -> Iterator[str]:
    if outcome.repeats > 1:
        most = max(result.runs for result in results)
        yield f"value: median of {most} runs' medians; spread: from the lowest of them to the"
        yield "highest, as a share of it"
    else:
        yield "value: median; spread: from p10 to p90, as a share of it"
    if any(result.baseline is not None for result in results):
        yield "baseline: median of n runs of the last 30 days, same GPU, probe and version"
    if outcome.no_history is not None:
        yield f"no baseline: {escaped(outcome.no_history)}"
        return
    names: defaultdict[str, list[str]] = defaultdict(list)
    for result in results:
        if result.no_baseline is not None:
            reasons = {each.no_baseline for each in results if each.probe == result.probe}
            name = result.probe if len(reasons) == 1 else f"{result.probe} {result.mode}"
            names[result.no_baseline].append(name)
    for reason, those in names.items():
        yield f"no baseline ({reason}): {_listed(those)}"


def _distributions(outcome: Outcome) -> Iterator[str]:
    for ran, samples in outcome.by_mode():
        buckets = [sample.buckets for sample in samples if sample.buckets is not None]
        if buckets and sum(sum(each.counts) for each in buckets) >= FEWEST_CALLS:
            where = "" if ran.gpu is None else f" on GPU {ran.gpu}"
            yield f"{escaped(ran.report.probe)} {escaped(samples[0].mode)}{where}"
            yield from _distribution(samples, buckets)


def _distribution(samples: Sequence[Sample], buckets: Sequence[Buckets]) -> Iterator[str]:
    """Draw one bar for each bucket that holds a call, as long as the logarithm of its count."""
    together = buckets[0]
    for each in buckets[1:]:
        together = merged(together, each)
    p50, p99 = (median([getattr(s, name) for s in samples]) for name in ("median", "p99"))
    figures = (human(each, "seconds") for each in (p50, p99, max(s.maximum for s in samples)))
    words = "p50 {}, p99 {}, max {} (bars are logarithmic)".format(*figures)
    total, most = sum(together.counts), max(together.counts)
    yield f"  {total} calls: {words}"
    bounds = [f"≤ {human(bound, 'seconds')}" for bound in LATENCY_BOUNDS_S]
    bounds.append(f"> {human(LATENCY_BOUNDS_S[-1], 'seconds')}")
    for bound, count in zip(bounds, together.counts, strict=True):
        if count:
            bar = "#" * max(1, round(LONGEST_BAR * math.log1p(count) / math.log1p(most)))
            share = f"{100 * count / total:.1f} %" if count >= total / 1000 else "<0.1 %"
            yield f"{bound:>10}  {bar:<{LONGEST_BAR}}{count:>7}{share:>8}"


def _troubles(outcome: Outcome) -> Iterator[str]:
    """Say what brought no figure and why, the same words once, each fix once."""
    if outcome.no_gpu is not None:
        yield f"no GPU was measured: {escaped(outcome.no_gpu)}"
    named: defaultdict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    for kind, name, detail, fix in (*_failed(outcome), *_missing(outcome)):
        named[kind, detail, fix].append(name)
    advised: set[str | None] = {None}
    for (kind, detail, fix), names in named.items():
        yield f"{kind}: {_listed(names)}: {escaped(detail)}"
        if fix not in advised:
            advised.add(fix)
            yield f"  fix: {escaped(fix or '')}"


def _failed(outcome: Outcome) -> Iterator[tuple[str, str, str, str | None]]:
    if (failure := outcome.cuda_failure) is not None:
        yield "failed", "CUDA", f"{failure.reason}: {failure.detail}", failure.advice
    for ran in outcome.runs:
        if (failure := ran.report.failure) is not None:
            name = f"{ran.report.probe}{_on(ran.gpu)}"
            yield "failed", name, f"{failure.reason}: {failure.detail}", failure.advice
    for name, reason in outcome.refused.items():
        yield "failed", name, f"does not load: {reason}", None
    for missed in outcome.not_run:
        yield "not run", f"{missed.probe}{_on(missed.gpu)}", missed.detail, missed.fix


def _missing(outcome: Outcome) -> Iterator[tuple[str, str, str, str | None]]:
    for ran in outcome.runs:
        place = _on(ran.gpu)
        for gap in ran.report.missing:
            name = f"{ran.report.probe} {gap.mode}{place}"
            yield "missing", name, f"{gap.reason}: {gap.detail}", None
        if ran.report.conditions.get("settled") is False:
            detail = "the clocks had not settled when the warm-up ended"
            yield "unsettled", f"{ran.report.probe}{place}", detail, None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(escaped(name) for name in dict.fromkeys(names))


def _on(gpu: int | None) -> str:
    return "" if gpu is None else f" on GPU {gpu}"
