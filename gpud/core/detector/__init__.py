"""Whether a new driver is slower than the old one, or the same driver became slower.

One ``Detector`` a stream, that is for one GPU (by its UUID), one probe and one mode; how it decides
is in docs/detector.md. Pure: no clock, no I/O, only the standard library.
"""

from gpud.core.detector.batch import detect
from gpud.core.detector.model import (
    Alarm,
    Direction,
    Effect,
    Kind,
    Observation,
    Refusal,
    Standing,
    State,
    Verdict,
    refusal,
)
from gpud.core.detector.parameters import Parameters
from gpud.core.detector.saved import restored, saved
from gpud.core.detector.stream import Detector

__all__ = [
    "Alarm",
    "Detector",
    "Direction",
    "Effect",
    "Kind",
    "Observation",
    "Parameters",
    "Refusal",
    "Standing",
    "State",
    "Verdict",
    "detect",
    "refusal",
    "restored",
    "saved",
]
