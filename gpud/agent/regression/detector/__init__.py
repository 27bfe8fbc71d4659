"""Detector of slower drivers, and of drivers that became slower.

One ``Detector`` a stream, that is for one GPU (by its UUID), one probe and one mode; how it decides
is in docs/detector.md. Pure: no clock, no I/O, only the standard library and msgspec.
"""

from gpud.agent.regression.detector.model import (
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
from gpud.agent.regression.detector.parameters import Parameters
from gpud.agent.regression.detector.stream import ENCODER, Detector, decode_hook, detect

__all__ = [
    "ENCODER",
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
    "decode_hook",
    "detect",
    "refusal",
]
