"""Lines of ``gpud status`` on the detectors: nothing where all is as usual."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from gpud.show.probewords import both, name_of
from gpud.show.units import DAY_S, interval, moment, spaced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.show.document import Alarm, Effect, Status, Stream, Verdict

MOST: Final = 4
"""Lines; the rest is in `gpud baseline show`."""
FEW: Final = 3
"""Streams that are named where many are alike."""
LATELY_S: Final = 7 * DAY_S
"""An improvement, or an update that nobody measures any more, is no news for longer."""


def lines(document: Status, now_s: float) -> list[str]:
    """Tell of streams that are slower or faster than they were, and of updates not yet decided.

    What is slower by the most at least comes first.
    """
    slower = [(alarm, one) for one in document.streams for alarm in one.open]
    slower.sort(key=lambda each: -each[0].effect.interval[0])
    shown = [f"{_head(one)}: {_much(alarm.effect)} slower{_change(alarm)}" for alarm, one in slower]
    recent = [
        (one, one.verdict)
        for one in document.streams
        if one.verdict and now_s - one.verdict.since_s < LATELY_S
    ]
    shown += [
        f"{_head(one)}: {_much(verdict.effect)} faster{_since(verdict)}"
        for one, verdict in recent
        if verdict.state == "improved" and verdict.effect
    ]
    shown += _undecided(recent)
    if len(shown) > MOST:
        more = len(shown) - MOST + 1
        shown = [*shown[: MOST - 1], f"and {more} more: gpud baseline show"]
    return shown


def _change(alarm: Alarm) -> str:
    if alarm.kind == "driver":
        return _since(alarm)
    return f" since {moment(alarm.since_s)} ({spaced(alarm.kind)}), {alarm.samples} samples"


def _undecided(streams: Iterable[tuple[Stream, Verdict]]) -> list[str]:
    """One line for all streams of a GPU that a driver is new to."""
    alike: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for one, verdict in streams:
        if verdict.state in {"learning", "undecided"}:
            words = f"{name_of(one.probe, one.mode)} {verdict.samples}"
            alike[_place(one), verdict.state, called(verdict.new_driver)].append(words)
    return [
        f"{place:<6} {state} about {driver}, samples so far: {_few(words)}"
        for (place, state, driver), words in alike.items()
    ]


def _few(words: list[str]) -> str:
    more = f" and {len(words) - FEW} more" if len(words) > FEW else ""
    return ", ".join(words[:FEW]) + more


def _since(change: Alarm | Verdict) -> str:
    return f" since {called(change.new_driver)}, {change.samples} samples"


def called(label: str) -> str:
    """Name a generation in a sentence: "driver 572.16", "kernel 6.6.87.2"."""
    return f"driver {label}" if label[:1].isdigit() else label


def _much(effect: Effect) -> str:
    """Write how much slower or faster, as a time: 0.9 of a rate is 11 % more time."""
    return f"{100 * (effect.slowdown - 1):.0f} % ({interval(effect, '-')})"


def _head(one: Stream) -> str:
    battery = " on battery" if one.on_battery else ""
    return f"{_place(one):<6} {both(one.probe, one.mode)}{battery}"


def _place(one: Stream) -> str:
    if one.uuid is None:
        return "CPU"
    return "GPU" if one.gpu is None else f"GPU {one.gpu}"
