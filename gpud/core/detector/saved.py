"""A detector's whole state as plain JSON data, and back: a restart in mid-verdict loses nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpud.core.detector.door import Door
from gpud.core.detector.gather import Gather
from gpud.core.detector.level import Level
from gpud.core.detector.model import Alarm, Direction, Effect, Kind, State, Verdict
from gpud.core.detector.share import Busy, Share
from gpud.core.detector.silence import Silence
from gpud.core.detector.stream import Detector
from gpud.core.detector.update import Trial
from gpud.core.errors import WireError

if TYPE_CHECKING:
    from gpud.core.detector.parameters import Parameters

VERSION = 2
"""Raised when a state of before would be misread."""


def saved(detector: Detector) -> dict[str, Any]:
    """Give the state as dicts, lists, texts, numbers and None; at most some 230 kB as JSON."""
    trial = detector.trial
    return {
        "version": VERSION,
        "direction": detector.direction.value,
        "door": detector.door.state(),
        "gather": detector.gather.state(),
        "share": detector.share.state(),
        "busy": detector.busy.state(),
        "silence": detector.silence.state(),
        "level": detector.level.state(),
        "left": [level.state() for level in detector.left],
        "trial": None if trial is None else trial.state(),
        "verdict": None if detector.settled is None else asdict(detector.settled),
        "open": [asdict(alarm) for alarm in detector.open],
        "judged": detector.judged,
        "last_judged_s": detector.last_judged_s,
    }


def restored(state: dict[str, Any], parameters: Parameters | None = None) -> Detector:
    """Read back what ``saved`` gave, also after a trip through JSON.

    Errors: ``WireError`` for another version, or for what ``saved`` never wrote.
    """
    version = state.get("version")
    if version != VERSION:
        raise WireError(
            f"detector state of version {version!r}, this gpud reads version {VERSION}",
            fix="it is learnt anew from the last samples",
        )
    try:
        return _restored(state, parameters)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise WireError(
            f"detector state is damaged: {type(error).__name__}: {error}",
            fix="it is learnt anew from the last samples",
        ) from error


def _restored(state: dict[str, Any], parameters: Parameters | None) -> Detector:
    found = Detector(Direction(state["direction"]), parameters)
    found.door = Door.restored(state["door"], found.parameters, found.direction.sign)
    found.gather = Gather.restored(state["gather"])
    found.share = Share.restored(state["share"])
    found.busy = Busy.restored(state["busy"])
    found.silence = Silence.restored(state["silence"])
    found.level = Level.restored(state["level"])
    found.left = [Level.restored(level) for level in state["left"]]
    if state["trial"] is not None:
        found.trial = Trial.restored(state["trial"])
    if state["verdict"] is not None:
        found.settled = _verdict(state["verdict"])
    found.open = [_alarm(alarm) for alarm in state["open"]]
    found.judged = state["judged"]
    found.last_judged_s = state["last_judged_s"]
    return found


def _verdict(state: dict[str, Any]) -> Verdict:
    effect = state["effect"]
    given = {"state": State(state["state"]), "effect": effect and Effect(**effect)}
    return Verdict(**state | given)


def _alarm(state: dict[str, Any]) -> Alarm:
    given = {
        "kind": Kind(state["kind"]),
        "effect": Effect(**state["effect"]),
        "closes": tuple(state["closes"]),
    }
    return Alarm(**state | given)
