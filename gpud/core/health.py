"""Health of one part of gpud, as a number for machines and a word for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The number behind ``gpud_health``."""

    OK = 0
    DEGRADED = 1
    FAILED = 2


@dataclass(frozen=True, slots=True)
class Health:
    """How one component is; ``reason`` is a slug of a bounded set, the words are in ``detail``."""

    level: Level
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None
    since_s: float = 0.0  # Unix time of the last change of level or reason
