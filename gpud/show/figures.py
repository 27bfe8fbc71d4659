"""Speed: each metric beside what is usual, its past, telemetry over time, verdicts on a driver."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.stats import INTEGERS, compared, human
from gpud.show import model
from gpud.units import DAY_S, place, plural, span
from gpud.words import (
    ALIKE,
    AS_USUAL,
    RATES,
    called,
    figure_of,
    name_of,
    place_of,
    rank,
    standing,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpud.document.runs import Figures, LastRun, StreamReport, VerdictReport
    from gpud.document.status import Status

MAIN: Final = frozenset(
    {
        *(("launch", mode) for mode in ("submit", "roundtrip", "pipelined")),
        *(("copy", mode) for mode in ("host_to_device", "device_to_host")),
        *((probe, probe) for probe in ("matmul", "tensor", "nbody", "triad")),
    }
)
"""Probes and modes of the first screen; others are there while they are slower."""
CROSSOVER: Final = "crossover"
FLAGS: Final = {
    "busy": "GPU in use",
    "low": "slow clocks",
    "resume": "just resumed",
    "cold": "not warmed up",
    "jumped": "clock jumped",
}
TITLE: Final = "Speed"
COLUMNS: Final = (
    model.Heading("metric"),
    model.Heading("last run", number=True),
    model.Heading("usual", number=True, place="wide"),
    model.Heading("slower by", number=True),
    model.Heading("verdict"),
)
DECIMALS_BELOW: Final = 9.95
"""Percent; above it a digit after the point says nothing."""
RANGES_S: Final = {
    "1h": 3600.0,
    "6h": 6 * 3600.0,
    "24h": DAY_S,
    "7d": 7 * DAY_S,
    "30d": 30 * DAY_S,
    "90d": 90 * DAY_S,
    "1y": 365 * DAY_S,
}
"""Ranges of the charts."""
ROOM: Final = 1.25
"""So many times the age of a slowdown is drawn, so that what was before it can be seen."""
VERDICTS: Final[dict[str, tuple[model.State, str]]] = {
    "regressed": ("failed", "slower"),
    "improved": ("ok", "faster"),
    "undecided": ("starting", "undecided"),
    "learning": ("starting", "learning"),
    "no_change": ("ok", "no change"),
    "none": ("starting", "no verdict"),
}
"""States of a verdict on a driver as signs and words, the most telling first."""
ARROW: Final = " \N{RIGHTWARDS ARROW} "
FIELDS: Final = {
    "temperature": "temperature_celsius",
    "power": "power_watts",
    "SM clock": "clock_sm_hertz",
    "memory clock": "clock_memory_hertz",
    "use": "utilization_gpu_ratio",
    "memory": "memory_used_bytes",
}
"""The fields that the history keeps, by what they are called."""
LOW_CLOCKS: Final = frozenset({"idle", "set_clocks", "sync_boost", "display_clocks"})
"""Reasons for low clocks that slow nothing."""


def measured(sample: Figures) -> model.Text:
    """Write a sample's figure; each of two humps apart."""
    first, *others = sample.humps
    if not others:
        return first
    whole: list[model.Text] = [first]
    whole += [model.Styled(f"/ {hump}", "hump") for hump in others]
    return model.Short(whole, human(sample.value, sample.unit, sample.mode))


def verdict(run: LastRun, stream: StreamReport | None) -> model.Text:
    """Say how a metric stands to what is usual, and why the last run does not count for it."""
    stands = standing(stream)
    shown: model.Text = stands.whole
    if stands.fires or stands.whole == AS_USUAL:
        shown = model.Mark("failed" if stands.fires else "ok", stands.whole)
    if run.flags:
        flags = ", ".join(FLAGS.get(flag, flag) for flag in run.flags)
        why = model.Mark("degraded", f"not compared: {flags}")
        return model.Short((shown, model.Styled(why, "aside")), stands.much or "not compared")
    return model.Short(shown, stands.much or stands.whole)


class Metric(NamedTuple):
    """A mode of a last run, and its stream."""

    run: LastRun
    sample: Figures
    stream: StreamReport | None

    @property
    def fires(self) -> bool:
        """Whether a change for the worse holds."""
        return self.stream is not None and bool(self.stream.open)

    @property
    def is_main(self) -> bool:
        """Whether it belongs on the first screen."""
        return self.fires or (self.run.probe, self.sample.mode) in MAIN

    @property
    def chart(self) -> str:
        """Return the name of its chart, which is an id."""
        return model.chart_name(self.run.gpu, self.run.probe, self.sample.mode)


def metrics(source: model.Input) -> list[Metric]:
    """Return every metric of the last runs: GPU by GPU in the order of words, the CPU last."""
    made = [
        Metric(run, sample, source.document.stream(run, sample.mode))
        for run in source.probes
        if run.probe != CROSSOVER
        for sample in run.samples
    ]
    return sorted(made, key=_rank)


def _rank(metric: Metric) -> tuple[bool, int, int]:
    run = metric.run
    return run.gpu is None, run.gpu or 0, place_of(run.probe, metric.sample.mode)


def _main(made: Sequence[Metric]) -> list[Metric]:
    return [metric for metric in made if metric.is_main and metric.run.gpu is not None]


def brief(source: model.Input, gpus: Collection[int | None] | None = None) -> model.Section:
    """Make one table of the metrics that matter, of these GPUs or of all; else of all metrics."""
    made = [metric for metric in metrics(source) if gpus is None or metric.run.gpu in gpus]
    table = _table(source, "speed", _main(made) or made, title=TITLE)
    return model.Section("figures", TITLE, [table] if made else [])


def section(source: model.Input) -> model.Section:
    """Make for each GPU a row for each metric that matters and their chart; fold the others."""
    if source.brief:
        return brief(source)
    made = metrics(source)
    main = _main(made)
    ran = {run.gpu for run in source.probes if run.gpu is not None}
    gpus = sorted(ran | gpus_with_telemetry(source))
    blocks: list[model.Block] = []
    for gpu in gpus:
        of_gpu = [metric for metric in main if metric.run.gpu == gpu]
        blocks += _gpu(source, gpu, of_gpu, heading=len(gpus) > 1)
    blocks += _failures(source)
    rest = [metric for metric in made if metric not in main]
    slower = [metric for metric in rest if metric.fires]
    if slower:
        blocks.append(_table(source, "speed-cpu", slower))
    folded = [metric for metric in rest if not metric.fires]
    if folded:
        others = [_table(source, "speed-rest", folded, where=len(gpus) > 1), *_notes(source)]
        words = "CPU reference" if all(m.run.gpu is None for m in folded) else "more metrics"
        blocks.append(model.Fold("metrics-rest", f"{len(folded)} {words}", others, whole=True))
    if made:
        charts = model.Group([_chart(source, metric) for metric in made])
        blocks.append(model.Fold("charts", "each metric in its own unit", [charts]))
    if not source.probes:
        blocks[:0] = [model.Paragraph("No probe has run yet.", "quiet")]
    store, first_s = source.document.store, None
    if store is not None:
        first_s = store.first_s if store.runs else source.document.started_s
    return model.Section("figures", TITLE, blocks, wide=True, first_s=first_s)


def _gpu(
    source: model.Input, gpu: int, main: Sequence[Metric], *, heading: bool
) -> Iterator[model.Block]:
    slug = model.slug(place(gpu))
    listed = source.document.gpus.get(source.uuid(gpu))
    name = f"{place(gpu)}: {listed.name}" if listed else place(gpu)
    if main:
        table = _table(source, f"speed-{slug}", main)
        title = model.Styled("Time for the same work, in percent of usual", "strong")
        aside = "; above 100 is slower"
        chart = model.Chart(f"usual-{slug}", (title, aside), "usual", {"rows": table.name}, ())
        yield model.Group([table, chart], name if heading else None)
    if heat := list(telemetry_charts(source, gpu)):
        slower = any(metric.fires for metric in main)
        words = "heat, power, clocks and use at the same time"
        if not main:
            words = f"heat, power, clocks and use of {name}"
        yield model.Fold(f"heat-{slug}", words, heat, opened=slower)


def gpus_with_telemetry(source: model.Input) -> set[int]:
    """Return the numbers of the GPUs that have telemetry now."""
    listed = {gpu.number for gpu in source.document.gpus.values()}
    return {gpu for gpu in listed if any(telemetry_charts(source, gpu))}


def telemetry_charts(source: model.Input, gpu: int | None) -> Iterator[model.Chart]:
    """Yield a chart of each field that has a value now."""
    present = {
        reading.field
        for reading in source.document.telemetry.readings
        if reading.gpu == gpu and isinstance(reading.value, int | float)
    }
    for words, field in FIELDS.items():
        if field in present:
            name = f"telemetry-{model.slug(place(gpu))}-{model.slug(words)}"
            title = model.Styled(words, "strong")
            data = {"gpu": source.uuid(gpu), "field": field, "calm": " ".join(sorted(LOW_CLOCKS))}
            yield model.Chart(name, title, "telemetry", data, ())


def suggested_range(document: Status) -> str | None:
    """Return the range in which the oldest slowdown that holds can be seen; None for none."""
    begun = [alarm.since_s for stream in document.streams for alarm in stream.open]
    if not begun:
        return None
    needed_s = max(ROOM * (document.written_s - min(begun)), DAY_S)
    return next((name for name, length_s in RANGES_S.items() if length_s >= needed_s), "1y")


def _table(
    source: model.Input, name: str, made: Sequence[Metric], *, title: str = "", where: bool = False
) -> model.Table:
    several = where or len({metric.run.gpu for metric in made} - {None}) > 1
    rows = [_row(metric, where=several) for metric in made]
    columns = (model.Heading(title), *COLUMNS[1:]) if title else COLUMNS
    past = [_past(source, metric) for metric in made]
    return model.Table(name, "Speed beside what is usual", columns, rows, past, limit=len(rows))


def _row(metric: Metric, *, where: bool) -> Sequence[model.Text]:
    run, sample, stream = metric
    usual = None if stream is None else stream.usual
    words, name = called(run.probe, sample.mode), name_of(run.probe, sample.mode)
    label: model.Text = model.Link(f"#{metric.chart}", words)
    label = label if words == name else model.Short((label, model.Styled(name, "name")), name)
    old = (" ", model.Mark("degraded", "old")) if run.old else None
    return (
        (f"{place(run.gpu)} ", label) if where and run.gpu is not None else label,
        (measured(sample), old),
        model.UNKNOWN if usual is None else human(usual, sample.unit, sample.mode),
        slower_by(metric),
        verdict(run, stream),
    )


def slower_by(metric: Metric) -> model.Text:
    """Write how much more time the last run took than is usual: "+12 %"; of a rate too."""
    value, usual = metric.sample.value, metric.stream and metric.stream.usual
    if not usual or not value:
        return model.UNKNOWN
    ratio = usual / value if metric.sample.unit in RATES else value / usual
    percent = 100 * (ratio - 1)
    words = f"{percent:+.{1 if abs(percent) < DECIMALS_BELOW else 0}f} %"
    return model.Mark("failed", words) if metric.fires and ratio > 1 + ALIKE else words


def _past(source: model.Input, metric: Metric) -> model.RecentValues:
    """Return times and medians of the latest clean runs, the oldest first."""
    run, sample = metric.run, metric.sample
    series = {
        "probe": run.probe,
        "mode": sample.mode,
        "gpu": source.uuid(run.gpu),
        "unit": "operations_per_second" if sample.mode in INTEGERS else sample.unit,
        "words": called(run.probe, sample.mode),
    }
    uuid = None if run.gpu is None else series["gpu"]
    for recent in source.document.recent:
        if (recent.uuid, recent.probe, recent.mode) == (uuid, run.probe, sample.mode):
            at_s = [recent.from_s + after_s for after_s in recent.after_s]
            return model.RecentValues(series, at_s, recent.medians)
    return model.RecentValues(series)


def _chart(source: model.Input, metric: Metric) -> model.Chart:
    """Make the chart of one metric in its own unit, with what only the last run has."""
    run, sample = metric.run, metric.sample
    title = model.Styled(called(run.probe, sample.mode), "strong")
    facts = [f"last run: {plural(sample.n, 'sample')}"]
    if sample.p90 is not None:
        facts.append(f"p90 {human(sample.p90, sample.unit, sample.mode)}")
    alarm = _alert_of(source.document, metric)
    link = ("; ", model.Link(f"#alert-{alarm}", "its alert")) if alarm else None
    below = model.Paragraph((", ".join(facts), link), "quiet")
    on = None if run.gpu is None else f" on {place(run.gpu)}"
    return model.Chart(metric.chart, (title, on), "history", _past(source, metric).series, [below])


def _alert_of(document: Status, metric: Metric) -> str | None:
    stream = metric.stream
    if stream is None:
        return None
    key = (stream.uuid, stream.probe, stream.mode)
    for alert in document.alerts:
        of = [(each.stream.gpu, each.stream.probe, each.stream.mode) for each in alert.evidence]
        if alert.firing and key in of:
            return alert.fingerprint[:16]
    return None


def _failures(source: model.Input) -> Iterator[model.Block]:
    """Say which probes' last runs failed and why; those that say the same together."""
    alike: dict[tuple[str, str | None], list[str]] = {}
    for run in source.probes:
        if (failure := run.failure) is not None and run.probe != CROSSOVER:
            why = failure.detail or failure.reason
            alike.setdefault((why, failure.advice), []).append(_where(run))
    for (why, advice), names in alike.items():
        named, mark = ", ".join(names), model.Mark("failed", "the last run failed: ")
        do = ("; ", model.Advice(advice)) if advice else None
        yield model.Paragraph((f"{named}: ", mark, model.Prose(why), do))


def _where(run: LastRun) -> str:
    return run.probe if run.gpu is None else f"{run.probe} on {place(run.gpu)}"


def _notes(source: model.Input) -> Iterator[model.Block]:
    """Say what else there is to say of last runs: a probe's note, modes that are not on offer."""
    for run in source.probes:
        if isinstance(note := run.conditions.get("note"), str):
            yield model.Paragraph((f"{_where(run)}: ", model.Prose(note)), "quiet")
        for mode in run.missing:
            words = f"{_where(run)}: not on offer: {mode.mode}: "
            yield model.Paragraph((words, model.Prose(mode.detail or mode.reason)), "quiet")


def drivers(source: model.Input) -> model.Section:
    """Make the verdicts on the newest driver: counted, and in a table, changes first."""
    states = tuple(VERDICTS)
    judged = [
        (s, s.verdict) for s in source.document.streams if s.verdict and s.verdict.state in VERDICTS
    ]
    judged.sort(key=lambda each: (states.index(each[1].state), each[0].uuid is None, rank(each[0])))
    if not judged:
        return model.Section("drivers", "Drivers", [])
    counts = Counter(verdict.state for _, verdict in judged)
    words = ", ".join(f"{counts[s]} {word}" for s, (_, word) in VERDICTS.items() if counts[s])
    headings = ("figure", "on", "driver", "verdict", "runs", "since")
    columns = model.headings(*headings, wide={"runs", "since"})
    rows = [
        (
            figure_of(stream),
            _place(stream),
            f"{verdict.old_driver}{ARROW}{verdict.new_driver}",
            verdict_on_driver(verdict),
            f"{verdict.samples} after {verdict.reference}",
            model.Timestamp(verdict.since_s),
        )
        for stream, verdict in judged
    ]
    changed = sum(counts[state] for state in ("regressed", "improved"))
    more, caption = model.code("gpud baseline show"), "Verdicts on the newest driver"
    table = model.Table("verdicts", caption, columns, rows, terminal=min(changed, 4), more=more)
    counted = model.Paragraph(f"Figures under the newest driver: {words}.")
    return model.Section("drivers", "Drivers", [counted, table], wide=True)


def _place(stream: StreamReport) -> str:
    gone = stream.uuid is not None and stream.gpu is None
    where = "GPU that is gone" if gone else place(stream.gpu)
    return f"{where}, on battery" if stream.on_battery else where


def verdict_on_driver(verdict: VerdictReport) -> model.Mark:
    """Put a verdict into words, with what it cannot see."""
    state, words = VERDICTS.get(verdict.state, ("starting", verdict.state))
    if verdict.effect and verdict.state == "regressed":
        words = f"{compared(verdict.effect.slowdown)} ({span(*verdict.effect.interval)})"
    elif verdict.effect and verdict.state == "improved":
        words = compared(1 / verdict.effect.slowdown)
    elif verdict.limit and verdict.state == "no_change":
        words = f"no change beyond \N{PLUS-MINUS SIGN}{100 * verdict.limit:.1f} %"
    elif verdict.state in {"learning", "undecided"}:
        words = f"{words}, samples so far are too few"
    elif verdict.why:
        words = f"{words}: {verdict.why}"
    return model.Mark(state, words)
