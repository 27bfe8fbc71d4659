"""Detection in a whole recorded stream, with the object that the agent feeds sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from gpud.agent.regression.detector.model import Direction, Observation
from gpud.agent.regression.detector.parameters import Parameters
from gpud.agent.regression.detector.stream import Detector
from gpud.core.sample import Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

UNRECORDED = "unrecorded"


class Detection(TypedDict):
    """One alarm, as an evaluation harness takes it."""

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
) -> list[Detection]:
    """Evaluate a recorded stream.

    Shapes: one entry a sample in each sequence; ``flags`` has '' or the value of one ``Flag``. An
    empty ``context`` is a driver like any other: a recording that names none is of one.
    Units: Unix seconds; values all of one unit. Errors: ``ValueError`` for an unknown direction or
    flag, or for sequences of different lengths.
    """
    words = flags if flags is not None else [""] * len(values)
    detector = Detector(Direction(direction)).configured(parameters or Parameters())
    detections: list[Detection] = []
    for at_s, value, driver, word in zip(timestamps, values, context, words, strict=True):
        marks = (Flag(word),) if word else ()
        alarm = detector.push(Observation(at_s, value, driver or UNRECORDED, marks))
        if alarm is not None:
            detections.append(
                {
                    "index": alarm.seq,
                    "change_index": alarm.since_seq,
                    "ratio": alarm.effect.ratio,
                }
            )
    return detections
