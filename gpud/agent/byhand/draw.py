"""An outcome as lines for a terminal: the figures, how launches are spread, what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.byhand.outcome import Result, latencies, results
from gpud.core import histogram
from gpud.core.severity import SEVERITY, Severity
from gpud.core.stats import human
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.byhand.outcome import Outcome, Ran
    from gpud.agent.byhand.terminal import Line
    from gpud.core.sample import Failure

FAILED, MISSING, HEAD, QUIET = "red", "yellow", "bold", "dim"
COLUMNS = ("probe", "mode", "value", "spread", "against baseline")
FROM_TENTHS = 0.0995
"""Below ten percent a tenth of one is shown."""


def lines(outcome: Outcome, *, width: int, ascii_only: bool) -> list[Line]:
    """Give everything there is to say, in order. No control character of a foreign text is left."""
    parts = (
        list(_table(outcome)),
        list(_histograms(outcome, width=width, ascii_only=ascii_only)),
        list(_troubles(outcome)),
    )
    drawn = [line for part in parts if part for line in (("", ""), *part)][1:]
    if not ascii_only:
        return drawn
    return [(text.replace("µ", "u"), style) for text, style in drawn]


def _table(outcome: Outcome) -> Iterator[Line]:
    found = results(outcome)
    if not found:
        return
    places = list(dict.fromkeys(result.gpu for result in found))
    rows: dict[int | None, list[tuple[str, ...]]] = {place: [] for place in places}
    for result in found:
        rows[result.gpu].append(_cells(result))
    every = [COLUMNS, *(row for place in places for row in rows[place])]
    widths = [max(len(row[column]) for row in every) for column in range(len(COLUMNS))]
    yield _row(COLUMNS, widths), HEAD
    for place in places:
        yield _place(outcome, place), HEAD
        yield from ((_row(row, widths), "") for row in _without_repeats(rows[place]))
    yield from ((text, QUIET) for text in _legend(outcome, found))


def _cells(result: Result) -> tuple[str, ...]:
    value = human(result.value, result.unit)
    mode = escaped(result.mode)
    if result.share is not None:
        mode = f"{mode} ({100 * result.share:.0f} %)"
    spread = "" if result.spread is None else percent(result.spread)
    if result.baseline is not None:
        against = f"{percent(result.baseline.ratio, signed=True)} (n {result.baseline.n})"
    else:
        against = "-"
    return escaped(result.probe), mode, value, spread, against


def _without_repeats(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Say the name of a probe once."""
    before = ""
    for name, *rest in rows:
        yield ("" if name == before else name), *rest
        before = name


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = [f"{cell:<{size}}" for cell, size in zip(cells[:2], widths[:2], strict=True)]
    right = [f"{cell:>{size}}" for cell, size in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join(["", *left, *right]).rstrip()


def _place(outcome: Outcome, gpu: int | None) -> str:
    if gpu is None:
        return "CPU"
    device = next((device for device in outcome.devices if device.index == gpu), None)
    return f"GPU {gpu}" if device is None else f"GPU {gpu}  {escaped(device.name)}"


def percent(ratio: float, *, signed: bool = False) -> str:
    """Write 0.034 as ``3.4 %``, with its sign if that is wanted."""
    digits = 1 if abs(ratio) < FROM_TENTHS else 0
    rounded = round(100 * ratio, digits)
    sign = "+" if signed and rounded else ""
    return f"{rounded + 0.0:{sign}.{digits}f} %"  # -0.0 is 0


def _legend(outcome: Outcome, found: Sequence[Result]) -> Iterator[str]:
    if outcome.repeats > 1:
        most = max(result.runs for result in found)
        yield f"value: median of {most} runs' medians; spread: from the lowest of them to the"
        yield "highest, as a share of it"
    else:
        yield "value: median; spread: from p10 to p90, as a share of it"
    if any(result.baseline is not None for result in found):
        yield "baseline: median of n runs of the last 30 days, same GPU, probe and version"
    if outcome.no_past is not None:
        yield f"no baseline: {escaped(outcome.no_past)}"
        return
    reasons: dict[str, dict[str, None]] = {}
    for result in found:
        if result.no_baseline is not None:
            without = {each.no_baseline for each in found if each.probe == result.probe}
            whole = without == {result.no_baseline}  # then its modes need no names
            name = escaped(result.probe if whole else f"{result.probe} {result.mode}")
            reasons.setdefault(result.no_baseline, {})[name] = None
    for reason, names in reasons.items():
        yield f"no baseline ({reason}): {', '.join(names)}"


def _histograms(outcome: Outcome, *, width: int, ascii_only: bool) -> Iterator[Line]:
    found = latencies(outcome)
    for index, each in enumerate(found):
        if index:
            yield "", ""
        where = "" if each.gpu is None else f" on GPU {each.gpu}"
        figures = (each.median, each.p99, each.maximum)
        p50, p99, most = (human(figure, "seconds") for figure in figures)
        yield f"{escaped(each.probe)} {escaped(each.mode)}{where}", HEAD
        yield f"  {each.n} calls: p50 {p50}, p99 {p99}, max {most} (bars are logarithmic)", QUIET
        for text in histogram.drawn(each.buckets, width=width - 1, ascii_only=ascii_only):
            yield text, ""


def _no_gpu(outcome: Outcome) -> Iterator[Line]:
    if outcome.no_gpu is not None:
        yield f"no GPU was measured: {escaped(outcome.no_gpu.detail)}", ""


def _troubles(outcome: Outcome) -> Iterator[Line]:
    """Say what brought no figure and why, the same words once, and each fix once."""
    advised: set[str] = set()

    def fix(text: str | None) -> Iterator[Line]:
        if text and text not in advised:
            advised.add(text)
            yield f"  fix: {escaped(text)}", ""

    yield from _no_gpu(outcome)
    if outcome.cuda_failure is not None:
        yield _failed("CUDA", outcome.cuda_failure)
        yield from fix(outcome.cuda_failure.advice)
    failures: dict[tuple[int | None, Failure], list[str]] = {}
    for ran in outcome.runs:
        if ran.report.failure is not None:
            names = failures.setdefault((ran.gpu, ran.report.failure), [])
            names.append(ran.report.probe)
    for (gpu, failure), names in failures.items():
        yield _failed(f"{_listed(names)}{_on(gpu)}", failure)
        yield from fix(failure.advice)
    for name, reason in outcome.refused.items():
        yield f"failed: {escaped(name)} does not load: {escaped(reason)}", FAILED
    stopped: dict[tuple[str, str | None], list[str]] = {}
    for missed in outcome.not_run:
        name = f"{missed.probe}{_on(missed.gpu)}"
        stopped.setdefault((missed.detail, missed.fix), []).append(name)
    for (detail, advice), names in stopped.items():
        yield f"not run: {_listed(names)}: {escaped(detail)}", FAILED
        yield from fix(advice)
    yield from _missing(outcome.runs)


def _missing(runs: Sequence[Ran]) -> Iterator[Line]:
    found: dict[tuple[str, int | None, str, str], list[str]] = {}
    unsettled: dict[str, None] = {}
    for ran in runs:
        for missing in ran.report.missing:
            key = (ran.report.probe, ran.gpu, str(missing.reason), missing.detail)
            found.setdefault(key, []).append(missing.mode)
        if ran.report.conditions.get("settled") is False:
            unsettled[f"{ran.report.probe}{_on(ran.gpu)}"] = None
    for (probe, gpu, reason, detail), modes in found.items():
        words = f"{escaped(probe)} {_listed(modes)}{_on(gpu)}: {reason}: {escaped(detail)}"
        yield f"missing: {words}", MISSING
    if unsettled:
        names = _listed(list(unsettled))
        yield f"unsettled: {names}: the clocks had not settled when the warm-up ended", MISSING


def _failed(name: str, failure: Failure) -> Line:
    critical = SEVERITY[failure.reason] is Severity.CRITICAL
    text = f"failed: {name}: {failure.reason}: {escaped(failure.detail)}"
    return text, FAILED if critical else MISSING


def _listed(names: Sequence[str]) -> str:
    return ", ".join(escaped(name) for name in dict.fromkeys(names))


def _on(gpu: int | None) -> str:
    return "" if gpu is None else f" on GPU {gpu}"
