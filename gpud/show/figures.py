"""Figures of every probe: the last run beside what is usual, their spread, verdicts on drivers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpud.core.stats import compared, human
from gpud.show import model
from gpud.units import interval, place
from gpud.words import (
    AS_USUAL,
    called,
    figure_of,
    latest_change,
    name_of,
    place_of,
    rank,
    standing,
    title_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpud.document.runs import Figures, LastRun
    from gpud.document.status import Status
    from gpud.document.streams import StreamReport, VerdictReport

    Past = tuple[Sequence[float], Sequence[float]]

APART: Final = (("cold", "after idling"), ("first", "for the first time"))
"""Modes of one probe that no axis can share with the others, by what is in their names."""
CROSSOVER: Final = "crossover"
FLAGS: Final = {
    "busy": "GPU in use",
    "low": "slow clocks",
    "resume": "just resumed",
    "cold": "not warmed up",
    "jumped": "clock jumped",
}
TITLE: Final = "Latency and throughput"
COLUMNS: Final = (
    model.Heading("figure"),
    model.Heading("now", number=True),
    model.Heading("usual", number=True, place="wide"),
    model.Heading("verdict"),
    model.Heading("p90", number=True, place="page"),
    model.Heading("samples", number=True, place="page"),
)
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


def measured(sample: Figures) -> model.Text:
    """Write a sample's figure; each of two humps apart."""
    first, *others = sample.humps
    if not others:
        return first
    whole: list[model.Text] = [first]
    whole += [model.Styled(f"/ {hump}", "hump") for hump in others]
    return model.Short(whole, human(sample.value, sample.unit, sample.mode))


def verdict(stream: StreamReport | None, sample: Figures) -> model.Text:
    """Say how a figure stands to what is usual.

    A verdict is of many runs. Where the last run alone comes to something else, both are said.
    """
    stands = standing(stream)
    shown: model.Text = stands.whole
    if stands.fires or stands.whole == AS_USUAL:
        shown = model.Mark("failed" if stands.fires else "ok", stands.whole)
    last = latest_change(stream, sample.value)
    if not last:
        return model.Short(shown, stands.much or stands.whole)
    when: model.Text = " over the latest runs"
    if stands.at_s is not None:
        when = (", judged ", model.Timestamp(stands.at_s))
    aside = model.Styled(f"the last run is {last}", "aside")
    return model.Short((shown, when, aside), f"now {last}")


def overview(shown: model.Input, name: str, gpus: Collection[int | None]) -> model.Table:
    """Make one row for each probe: the mode that has become slower, or else the first."""
    rows: list[Sequence[model.Text]] = []
    past = []
    columns: Sequence[model.Heading] = (*COLUMNS[:2], COLUMNS[3])
    if shown.brief:
        columns = (model.Heading(TITLE), *COLUMNS[1:4])
    for run in _ordered(shown):
        if run.gpu not in gpus or not run.samples:
            continue
        streams = [(shown.document.stream(run, sample.mode), sample) for sample in run.samples]
        _, sample = min(streams, key=lambda mode: not (mode[0] and mode[0].open))
        figure, now, usual, stands, *_ = _row(shown, run, sample)
        old = None if shown.is_fresh(run) else (" ", model.Mark("degraded", "old"))
        where = (f"{place(run.gpu)} ", figure) if len(set(gpus) - {None}) > 1 else figure
        rows.append(
            (where, (now, old), usual, stands) if shown.brief else (where, (now, old), stands)
        )
        past.append(_past(shown.document, run, sample))
    return model.Table(f"overview{_slug(name)}", f"How fast{name}", columns, rows, past)


def section(shown: model.Input) -> model.Section:
    """Make a chart for each family of modes of each probe, by GPU and then of the CPU."""
    if shown.brief:
        table = overview(shown, "", {run.gpu for run in shown.probes})
        return model.Section("figures", TITLE, [table] if table.rows else [])
    groups: dict[int | None, list[model.Chart]] = {}
    for run in _ordered(shown):
        if run.probe != CROSSOVER:
            groups.setdefault(run.gpu, []).extend(_charts(shown, run))
    several = len(groups.keys() - {None}) > 1
    blocks: list[model.Block] = [
        model.Group(charts, _heading(shown, gpu) if several or gpu is None else None)
        for gpu, charts in groups.items()
    ]
    store = shown.document.store
    first_s = None
    if store is not None:
        first_s = store.first_s if store.runs else shown.document.started_s
    if not blocks:
        blocks = [model.Paragraph("No probe has run yet.", "quiet")]
    return model.Section("figures", TITLE, blocks, "Figures", wide=True, first_s=first_s)


def _ordered(shown: model.Input) -> list[LastRun]:
    return sorted(
        shown.probes, key=lambda run: (run.gpu is None, run.gpu or 0, place_of(run.probe))
    )


def _heading(shown: model.Input, gpu: int | None) -> str:
    listed = shown.document.gpus.get(shown.uuid(gpu))
    return f"{place(gpu)}: {listed.name[:120]}" if listed else place(gpu)


def _charts(shown: model.Input, run: LastRun) -> Iterator[model.Chart]:
    """Yield a chart for each family of modes: those of one magnitude."""
    title = title_of(run.probe)
    if not run.samples:
        yield _chart(shown, run, title, "", ())
        return
    families = {"": title, **{part: f"{title} {words}" for part, words in APART}}
    for family, name in families.items():
        samples = [sample for sample in run.samples if _family(sample) == family]
        if samples:
            yield _chart(shown, run, name, family, samples)


def _family(sample: Figures) -> str:
    return next((part for part, _ in APART if part in sample.mode.split("_")), "")


def _chart(
    shown: model.Input, run: LastRun, title: str, family: str, samples: Sequence[Figures]
) -> model.Chart:
    probe = "".join(c if c.isascii() and c.isalnum() else "_" for c in run.probe[:40])
    name = "-".join(["history", _slug(place(run.gpu)), probe, *[family] * bool(family)])
    rows = [_row(shown, run, sample) for sample in samples]
    past = [_past(shown.document, run, sample) for sample in samples]
    values = model.Table(f"{name}-values", f"{title}: the last run", COLUMNS, rows, past)
    return model.Chart(
        name,
        _title(title, run.gpu),
        "history" if samples else None,
        {
            "probe": run.probe,
            "modes": " ".join(sample.mode for sample in samples),
            "words": "|".join(called(run.probe, sample.mode) for sample in samples),
            "gpu": shown.uuid(run.gpu),
            "unit": samples[0].unit if samples else None,
        },
        [values, *_notes(shown, run)],
    )


def _slug(words: str) -> str:
    """Write words as a part of an id: "GPU 0" is "gpu0"."""
    return words.replace(" ", "").lower()


def _title(title: str, gpu: int | None) -> model.Text:
    """Name a chart; those of the CPU say by themselves that they are."""
    return (model.Styled(title, "strong"), None if gpu is None else f" on {place(gpu)}")


def _row(shown: model.Input, run: LastRun, sample: Figures) -> Sequence[model.Text]:
    stream = shown.document.stream(run, sample.mode)
    usual = None if stream is None else stream.usual
    words, name = called(run.probe, sample.mode), name_of(run.probe, sample.mode)
    return (
        words if words == name else model.Short((words, model.Styled(name, "name")), name),
        measured(sample),
        model.UNKNOWN if usual is None else human(usual, sample.unit, sample.mode),
        verdict(stream, sample),
        model.UNKNOWN if sample.p90 is None else human(sample.p90, sample.unit, sample.mode),
        f"{sample.n:,}",
    )


def _past(document: Status, run: LastRun, sample: Figures) -> Past:
    """Return times and medians of the latest clean runs, the oldest first."""
    for recent in document.recent:
        gpu = document.gpus.get(recent.uuid or "")
        number = gpu.number if gpu else None
        gone = recent.uuid is not None and gpu is None
        if not gone and (number, recent.probe, recent.mode) == (run.gpu, run.probe, sample.mode):
            return [recent.from_s + after_s for after_s in recent.after_s], recent.medians
    return (), ()


def _notes(shown: model.Input, run: LastRun) -> Iterator[model.Block]:
    """Say what is to be said of a run beside its figures; of one without, why."""
    if (failure := run.failure) is not None:
        advice = ("; ", model.Advice(failure.advice)) if failure.advice else None
        why = model.Prose(failure.detail or failure.reason, 600)
        yield model.Paragraph((model.Mark("failed", "the last run failed: "), why, advice))
    if run.last_success_s is not None:
        yield model.Detail(
            [
                model.Paragraph(
                    ("last good run ", model.Timestamp(run.last_success_s, ago=True)), "quiet"
                )
            ]
        )
    if not shown.is_fresh(run):
        yield model.Paragraph(model.Mark("degraded", "too old to stand for now"))
    if run.flags:
        flags = ", ".join(FLAGS.get(flag, flag) for flag in run.flags)
        yield model.Paragraph(("not compared: ", model.Mark("degraded", flags)), "quiet")
    if isinstance(note := run.conditions.get("note"), str):
        yield model.Paragraph(model.Prose(note, 400), "quiet")
    for mode in run.missing:
        words = f"not on offer: {mode.mode[:80]}: "
        yield model.Paragraph((words, model.Prose(mode.detail or mode.reason, 400)), "quiet")


def crossover(shown: model.Input) -> model.Section:
    """Say from which size on each GPU beats the CPU; a run without a result says why."""
    charts = [_crossover(run) for run in shown.probes if run.probe == CROSSOVER]
    title = "Where the GPU begins to win"
    blocks = [model.Group(charts)] if charts else []
    return model.Section("crossover", title, blocks, "Crossover", wide=True)


def _crossover(run: LastRun) -> model.Chart:
    name, where = f"crossover-{_slug(place(run.gpu))}", place(run.gpu)
    title = f"Matrix product, {where} beside the CPU"
    when = (
        (", ", model.Timestamp(run.last_success_s, ago=True))
        if run.last_success_s is not None
        else None
    )
    result: model.Text = "No size has been found."
    if run.failure is not None:
        result = (model.Prose(run.failure.detail or run.failure.reason, 600), when)
    elif run.samples:
        side = human(run.samples[0].median, "elements")
        fast = " on the GPU is faster, copies included"
        result = ("From ", model.Styled(side, "strong"), fast, when)
    return model.Chart(name, model.Styled(title, "strong"), None, {}, [model.Paragraph(result)])


def drivers(shown: model.Input) -> model.Section:
    """Make the verdicts on the newest driver: changes in a table, the others counted."""
    judged = [(stream, stream.verdict) for stream in shown.document.streams if stream.verdict]
    judged.sort(key=_order)
    if not judged:
        return model.Section("drivers", "Drivers", [])
    counts = Counter(verdict.state for _, verdict in judged)
    words = ", ".join(f"{counts[s]} {word}" for s, (_, word) in VERDICTS.items() if counts[s])
    changed = [each for each in judged if each[1].state in {"regressed", "improved"}]
    others = [each for each in judged if each[1].state not in {"regressed", "improved"}]
    blocks: list[model.Block] = [model.Paragraph(f"Figures under the newest driver: {words}.")]
    if changed:
        blocks.append(_verdicts("verdicts", "Verdicts on the newest driver", changed))
    if others:
        table = _verdicts("unchanged", "Figures without a change", others)
        blocks.append(model.Fold("verdicts-rest", f"{len(others)} without a change", [table]))
    return model.Section("drivers", "Drivers", blocks, wide=True)


def _order(judged: tuple[StreamReport, VerdictReport]) -> tuple[int, bool, int, int, str]:
    stream, verdict = judged
    states = tuple(VERDICTS)
    at = states.index(verdict.state) if verdict.state in states else len(states)
    return (at, stream.uuid is None, stream.gpu or 0, rank(stream), stream.mode)


def _verdicts(
    name: str, caption: str, judged: Sequence[tuple[StreamReport, VerdictReport]]
) -> model.Table:
    headings = ("figure", "on", "driver", "verdict", "runs", "since")
    columns = model.headings(*headings, wide={"runs", "since"})
    rows = [
        (
            figure_of(stream),
            _where(stream),
            f"{verdict.old_driver[:60]}{ARROW}{verdict.new_driver[:60]}",
            verdict_on_driver(verdict),
            f"{verdict.samples} after {verdict.reference}",
            model.Timestamp(verdict.since_s),
        )
        for stream, verdict in judged
    ]
    more = model.code("gpud baseline show")
    return model.Table(name, caption, columns, rows, terminal=4, more=more)


def _where(stream: StreamReport) -> str:
    gone = stream.uuid is not None and stream.gpu is None
    where = "GPU that is gone" if gone else place(stream.gpu)
    return f"{where}, on battery" if stream.on_battery else where


def verdict_on_driver(verdict: VerdictReport) -> model.Mark:
    """Put a verdict into words, with what it cannot see."""
    state, words = VERDICTS.get(verdict.state, ("starting", verdict.state))
    if verdict.effect and verdict.state == "regressed":
        words = f"{compared(verdict.effect.slowdown)} ({interval(verdict.effect)})"
    elif verdict.effect and verdict.state == "improved":
        words = compared(1 / verdict.effect.slowdown)
    elif verdict.limit and verdict.state == "no_change":
        words = f"no change beyond \N{PLUS-MINUS SIGN}{100 * verdict.limit:.1f} %"
    elif verdict.state in {"learning", "undecided"}:
        words = f"{words}, samples so far are too few"
    elif verdict.why:
        words = f"{words}: {verdict.why[:200]}"
    return model.Mark(state, words)
