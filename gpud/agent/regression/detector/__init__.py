"""Detector of slower drivers, and of drivers that became slower.

One ``Detector`` a stream, that is for one GPU (by its UUID), one probe and one mode; how it decides
is in docs/detector.md. Pure: no clock, no I/O, only the standard library and msgspec.
"""

from gpud.agent.regression.detector.model import (
    Alarm,
    ChangeKind,
    Direction,
    DriverVerdict,
    Effect,
    Observation,
    SampleRefusal,
    StreamStanding,
    VerdictState,
    refusal,
)
from gpud.agent.regression.detector.parameters import Spans
from gpud.agent.regression.detector.stream import ENCODER, Detector, decode_hook, detect

__all__ = [
    "ENCODER",
    "Alarm",
    "ChangeKind",
    "Detector",
    "Direction",
    "DriverVerdict",
    "Effect",
    "Observation",
    "SampleRefusal",
    "Spans",
    "StreamStanding",
    "VerdictState",
    "decode_hook",
    "detect",
    "refusal",
]
