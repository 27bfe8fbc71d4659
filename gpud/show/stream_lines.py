"""What ``gpud status`` says of the detectors: nothing where all is as usual."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from gpud.show.probewords import both, name_of
from gpud.show.standingwords import lower_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST: Final = 4
"""Lines; the rest is in `gpud baseline show`."""
FEW: Final = 3
"""Streams that are named where many are alike."""
LATELY_S: Final = 7 * 86400.0
"""An improvement, or an update that nobody measures any more, is no news for longer."""


def lines(document: Mapping[str, Any], now_s: float, moment: Callable[[float], str]) -> list[str]:
    """Tell of streams that are slower or faster than they were, and of updates not yet decided.

    Units: ``now_s`` is Unix time, which ``moment`` writes for people. What is slower by the most
    at least comes first.
    """
    streams = document.get("streams") or ()  # an agent of an older release tells of none
    changed = [
        (lower_bound(alarm["effect"]), _open(one, alarm, moment))
        for one in streams
        for alarm in one["open"]
    ]
    shown = [text for _, text in sorted(changed, key=lambda each: -each[0])]
    recent = [
        one for one in streams if one["verdict"] and now_s - one["verdict"]["since_s"] < LATELY_S
    ]
    shown += [
        f"{_head(one)}: {_effect(one['verdict']['effect'])} faster{_since(one['verdict'])}"
        for one in recent
        if one["verdict"]["state"] == "improved" and one["verdict"]["effect"]
    ]
    shown += _undecided(recent)
    if len(shown) > MOST:
        more = len(shown) - MOST + 1
        shown = [*shown[: MOST - 1], f"and {more} more: gpud baseline show"]
    return shown


def _open(one: Mapping[str, Any], alarm: Mapping[str, Any], moment: Callable[[float], str]) -> str:
    said = f"{_head(one)}: {_effect(alarm['effect'])} slower"
    if alarm["kind"] == "driver":
        return f"{said}{_since(alarm)}"
    kind = alarm["kind"].replace("_", " ")
    return f"{said} since {moment(alarm['since_s'])} ({kind}), {alarm['samples']} samples"


def _undecided(streams: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for all streams of a GPU that a driver is new to."""
    alike: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for one in streams:
        verdict = one["verdict"]
        if verdict["state"] in {"learning", "undecided"}:
            words = f"{name_of(one['probe'], one['mode'])} {verdict['samples']}"
            alike[_place(one), verdict["state"], called(verdict["new_driver"])].append(words)
    return [
        f"{place:<6} {state} about {driver}, samples so far: {_few(words)}"
        for (place, state, driver), words in alike.items()
    ]


def _few(words: list[str]) -> str:
    more = f" and {len(words) - FEW} more" if len(words) > FEW else ""
    return ", ".join(words[:FEW]) + more


def _since(said: Mapping[str, Any]) -> str:
    return f" since {called(said['new_driver'])}, {said['samples']} samples"


def called(label: str) -> str:
    """Name a generation in a sentence: "driver 572.16", "kernel 6.6.87.2"."""
    return f"driver {label}" if label[:1].isdigit() else label


def _effect(effect: Mapping[str, float]) -> str:
    """Write how much slower or faster, as a time: 0.9 of a rate is 11 % more time."""
    ratios = (effect["ratio"], effect["low"], effect["high"])
    times = ratios if ratios[0] > 1 else tuple(1 / ratio for ratio in ratios)
    much, low, high = times[0], min(times[1:]), max(times[1:])
    return f"{100 * (much - 1):.0f} % ({100 * (low - 1):.1f}-{100 * (high - 1):.1f} %)"


def _head(one: Mapping[str, Any]) -> str:
    battery = " on battery" if one["on_battery"] else ""
    return f"{_place(one):<6} {both(one['probe'], one['mode'])}{battery}"


def _place(one: Mapping[str, Any]) -> str:
    if one["uuid"] is None:
        return "CPU"
    return "GPU" if one["gpu"] is None else f"GPU {one['gpu']}"
