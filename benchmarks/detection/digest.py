"""Digests of what the detector says of a stream, sample by sample.

A line for each stream: a hash of every verdict and alarm and of every 25th standing, the state of
the last verdict, the alarms with their samples, and the stream's name. Figures have six digits.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from benchmarks.detection.score import visible
from gpud.agent.regression.detector import Detector, Direction, Observation
from gpud.agent.regression.detector.stream import UNRECORDED
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.detection.made import Stream
    from gpud.agent.regression.detector import Alarm, DriverVerdict, Effect, StreamStanding

STANDING_EVERY = 25


def trace(stream: Stream, *, power: bool = False) -> Iterator[tuple[str, str, str]]:
    """Give verdict, alarm and, at times, standing after each sample, as text."""
    detector = Detector(Direction(stream.direction))
    flags = visible(stream, power=power)
    last = len(stream.values) - 1
    rows = zip(stream.timestamps, stream.values, stream.context, flags, strict=True)
    for seq, (at_s, value, driver, flag) in enumerate(rows):
        marks = (Flag(flag),) if flag else ()
        alarm = detector.push(Observation(at_s, value, driver or UNRECORDED, marks))
        complete = seq % STANDING_EVERY == 0 or seq == last
        standing = _standing(detector.standing()) if complete else ""
        yield _verdict(detector.verdict), _alarm(alarm), standing


def digest(stream: Stream, *, power: bool = False) -> str:
    """Give the line of a stream."""
    whole, alarms, verdict = hashlib.sha256(), list[str](), ""
    for seq, (verdict, alarm, standing) in enumerate(trace(stream, power=power)):
        whole.update(f"{verdict}|{alarm}|{standing}\n".encode())
        if alarm:
            alarms.append(f"{seq}:{alarm.split(' ', 1)[0]}")
    state = verdict.split(" ", 1)[0] or "-"
    name = f"{stream.name}, power known" if power else stream.name
    return f"{whole.hexdigest()[:16]} {state} {','.join(alarms) or '-'} {name}"


def differences(path: Path, lines: Iterable[str]) -> list[str]:
    """Name the streams whose lines in a file and whose lines now differ, with both."""
    stored, now = (
        {line.split(" ", 3)[3]: line for line in part}
        for part in (path.read_text().splitlines(), lines)
    )
    return [
        f"{name}\n  stored {stored.get(name, 'no such stream')}\n  now    {now.get(name, 'none')}"
        for name in sorted(stored.keys() | now.keys())
        if stored.get(name) != now.get(name)
    ]


def _verdict(verdict: DriverVerdict | None) -> str:
    if verdict is None:
        return ""
    drivers = f"{verdict.old_driver} {verdict.new_driver}"
    counts = f"{verdict.samples} {verdict.reference}"
    effect, limit = _effect(verdict.effect), _figure(verdict.limit)
    return f"{verdict.state} {drivers} {verdict.since_s:.0f} {counts} {effect} {limit}"


def _alarm(alarm: Alarm | None) -> str:
    if alarm is None:
        return ""
    place = f"{alarm.kind} {'worse' if alarm.worse else 'better'} {alarm.since_seq}"
    levels = f"{_effect(alarm.effect)} {_figure(alarm.before)} {_figure(alarm.after)}"
    based = f"{alarm.samples} {alarm.reference} {alarm.closes}"
    return f"{place} {levels} {alarm.old_driver} {alarm.new_driver} {based}"


def _standing(standing: StreamStanding) -> str:
    figures = (
        standing.level,
        standing.slowdown,
        standing.slow_state_ratio,
        standing.busy_ratio,
        standing.busy_before_ratio,
    )
    alarms = [alarm.seq for alarm in standing.open]
    return f"{standing.judged} {alarms} {' '.join(map(_figure, figures))}"


def _effect(effect: Effect | None) -> str:
    if effect is None:
        return "-"
    return f"{_figure(effect.ratio)} {_figure(effect.low)} {_figure(effect.high)}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
