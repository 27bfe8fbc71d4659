"""A whole stream at once, through the same object that the agent feeds sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from gpud.core.detector.model import Direction, Observation
from gpud.core.detector.stream import Detector
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.detector.parameters import Parameters


UNRECORDED = "unrecorded"


class Found(TypedDict):
    """One alarm as evaluation harnesses want it."""

    index: int
    change_index: int
    ratio: float


def detect(  # noqa: PLR0913, PLR0917  # the harness's signature
    timestamps: Sequence[float],
    values: Sequence[float],
    context: Sequence[str],
    direction: str,
    flags: Sequence[str] | None = None,
    parameters: Parameters | None = None,
) -> list[Found]:
    """Judge a recorded stream.

    Shapes: one entry a sample in each sequence; ``flags`` has '' or the value of one ``Flag``. An
    empty ``context`` is a driver like any other: a recording that names none is of one.
    Units: Unix seconds; values all of one unit. Errors: ``ValueError`` for an unknown direction or
    flag, or for sequences of different lengths.
    """
    marks = flags if flags is not None else [""] * len(values)
    judge = Detector(Direction(direction), parameters)
    found: list[Found] = []
    for at_s, value, driver, mark in zip(timestamps, values, context, marks, strict=True):
        given = (Flag(mark),) if mark else ()
        alarm = judge.push(Observation(at_s, value, driver or UNRECORDED, given))
        if alarm is not None:
            found.append(
                Found(index=alarm.seq, change_index=alarm.since_seq, ratio=alarm.effect.ratio)
            )
    return found
