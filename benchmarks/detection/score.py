"""How well a detector did on labelled streams, and whether it looked ahead.

A regression is hit by the first alarm in its span and counts once; later alarms in the span are
false, but a drift may raise three. An alarm after the span and before the next change, for a
regression not yet found, is late: neither hit nor false. Alarms in zones to ignore, and alarms that
tell of an improvement, are not scored. Everything else is a false alarm.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.detection.made import SPAN_NIGHTLY, Label, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Detect: TypeAlias = "Callable[[Stream, Sequence[str]], list[dict[str, Any]]]"
"""A stream and the flags that may be seen of it; alarms with index, change_index and ratio."""
DRIFT_ALARMS = 3
COUNTS = (
    *("hits", "false", "missed", "nulls", "null_alarms", "samples", "lookahead"),
    *("intervals", "intervals_right"),
)
AT_ONCE = {"driver", "step"}


@dataclass(slots=True)
class Score:
    """Counts of one detector on one set of streams."""

    hits: int = 0
    false: int = 0
    missed: int = 0
    nulls: int = 0
    null_alarms: int = 0
    samples: int = 0
    delays: list[int] = field(default_factory=list)
    driver_delays: list[int] = field(default_factory=list)
    driver_errors: list[float] = field(default_factory=list)
    intervals: int = 0  # told with changes at once whose size is known
    intervals_right: int = 0
    lookahead: int = 0
    seconds: float = 0.0

    @property
    def precision(self) -> float:
        """Of the alarms, those that were right; NaN without any."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else math.nan

    @property
    def recall(self) -> float:
        """Of the regressions, those that were found."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else math.nan

    @property
    def f1(self) -> float:
        """Both in one."""
        total = 2 * self.hits + self.false + self.missed
        return 2 * self.hits / total if total else math.nan

    @property
    def false_per_1000(self) -> float:
        """False alarms per 1,000 samples."""
        return 1000 * self.false / self.samples if self.samples else math.nan

    @property
    def delay(self) -> float:
        """Samples from the change to the alarm, the middle of all."""
        return median(self.delays) if self.delays else math.nan

    def add(self, other: Score) -> None:
        """Take another set's counts in."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.seconds += other.seconds
        self.delays += other.delays
        self.driver_delays += other.driver_delays
        self.driver_errors += other.driver_errors


def visible(stream: Stream, *, power: bool) -> list[str]:
    """Give the flags a detector may see: those of the slow power state only with ``power``."""
    if not power:
        return stream.flags
    pairs = zip(stream.flags, stream.low, strict=True)
    return ["low" if low and flag != "busy" else flag for flag, low in pairs]


def judged(stream: Stream, alarms: Sequence[dict[str, Any]]) -> Score:
    """Score the alarms of one stream."""
    up = stream.direction == "lower-is-better"
    worse = [one for one in alarms if (one["ratio"] > 1) is up and one["ratio"] != 1]
    bad = sorted(worse, key=lambda alarm: (alarm["index"], alarm["change_index"]))
    score = Score(samples=len(stream.values))
    regressions = [label for label in stream.labels if label.kind == "regression"]
    alarmed: dict[int, int] = {}
    late: set[int] = set()
    for alarm in bad:
        index = alarm["index"]
        hit = [label for label in regressions if label.lo <= index <= label.end]
        if hit:
            _hit(score, hit[-1], alarm, alarmed)
        elif not any(
            label.kind == "ignore" and label.lo <= index <= max(label.hi, label.end)
            for label in stream.labels
        ):
            _stray(score, stream, index, alarmed, late)
    found = sum(1 for label in regressions if id(label) in alarmed and id(label) not in late)
    score.missed = len(regressions) - found
    for label in stream.labels:
        if label.kind == "null":
            score.nulls += 1
            score.null_alarms += any(label.at <= one["index"] <= label.end for one in bad)
    return score


def _hit(score: Score, label: Label, alarm: dict[str, Any], alarmed: dict[int, int]) -> None:
    count = alarmed[id(label)] = alarmed.get(id(label), 0) + 1
    if count > (DRIFT_ALARMS if label.cause == "drift" else 1):
        score.false += 1
    if count > 1:
        return
    score.hits += 1
    delay = max(0, alarm["index"] - label.at)
    score.delays.append(delay)
    if label.cause == "driver":
        score.driver_delays.append(delay)
        score.driver_errors.append(abs(math.log(alarm["ratio"] / label.ratio)))
    if label.cause in AT_ONCE and "low" in alarm:
        score.intervals += 1
        score.intervals_right += alarm["low"] <= label.ratio <= alarm["high"]


def _stray(
    score: Score, stream: Stream, index: int, alarmed: dict[int, int], late: set[int]
) -> None:
    before = [
        label
        for label in stream.labels
        if label.kind in {"regression", "improvement"} and label.at <= index
    ]
    last = before[-1] if before else None
    if last is not None and last.kind == "regression" and id(last) not in alarmed:
        alarmed[id(last)] = 1
        late.add(id(last))
        return
    score.false += 1


def looked_ahead(detect: Detect, stream: Stream, *, power: bool, cuts: int = 3) -> int:
    """Count the cuts of a stream after which a detector said other things about what was before."""
    flags = visible(stream, power=power)
    whole = detect(stream, flags)
    n = len(stream.values)
    rng = random.Random(stream.name)
    places = {alarm["index"] + 1 for alarm in whole[:cuts]}
    places |= {rng.randrange(n // 4, n) for _ in range(cuts)}
    wrong = 0
    for cut in sorted(places):
        part = Stream(
            stream.name,
            stream.part,
            stream.direction,
            stream.timestamps[:cut],
            stream.values[:cut],
            stream.context[:cut],
        )
        wrong += detect(part, flags[:cut]) != [one for one in whole if one["index"] < cut]
    return wrong


def recorded(folder: Path) -> Iterator[Stream]:
    """Read the streams of every *.jsonl in a folder: one JSON object a line."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield _stream(json.loads(line))


def _stream(row: dict[str, Any]) -> Stream:
    n = len(row["v"])
    starts = [start for start, _ in row["ctx"]] + [n]
    context: list[str] = []
    for (start, driver), end in zip(row["ctx"], starts[1:], strict=True):
        context += [driver] * (end - start)
    flags, low = [""] * n, [False] * n
    for first, last, flag in row.get("flags", []):
        for index in range(first, min(last + 1, n)):
            flags[index] = flag if flag == "busy" or not flags[index] else flags[index]
    for first, last in row.get("low", []):
        low[first : last + 1] = [True] * (last + 1 - first)
    return Stream(
        name=row["id"],
        part="made" if row["source"] == "synthetic" else "recorded",
        direction=row["direction"],
        timestamps=[float(at_s) for at_s in row["t"]],
        values=row["v"],
        context=context,
        flags=flags,
        low=low[:n],
        kinds=(row["source"], *([row["scenario"]] if "scenario" in row else [])),
        labels=_labels(sorted(row["labels"], key=lambda label: label["at"]), n),
    )


def _labels(rows: list[dict[str, Any]], n: int) -> list[Label]:
    found = []
    for turn, row in enumerate(rows):
        changes = [
            other["lo"]
            for other in rows[turn + 1 :]
            if other["kind"] in {"regression", "improvement"} and other["lo"] > row["hi"]
        ]
        end = row["hi"]
        if row["kind"] != "ignore":
            end = min(min([*changes, n]) - 1, row["hi"] + SPAN_NIGHTLY)
        cause = row.get("cause", row["by"])
        where = (row["lo"], row["at"], row["hi"], row.get("end", end))
        found.append(Label(row["kind"], cause, *where, row["ratio"]))
    return found
