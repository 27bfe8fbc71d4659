"""Health of one part of gpud, as a number for machines and a word for people."""

from enum import IntEnum

import msgspec


class Level(IntEnum):
    """The number behind ``gpud_health``."""

    OK = 0
    DEGRADED = 1
    FAILED = 2


class Health(msgspec.Struct, frozen=True):
    """How one component is; ``reason`` is a slug of a bounded set, the words are in ``detail``."""

    level: Level = Level.OK
    reason: str | None = None
    detail: str | None = None
    fix: str | None = None
    since_s: float = 0.0  # Unix time of the last change of level or reason

    @property
    def why(self) -> str:
        """The reason in words; empty if there is none."""
        return words_of(self.reason, self.detail)


def words_of(reason: str | None, detail: str | None) -> str:
    """Return why something is not well in words: the detail, or else the slug as words."""
    return detail or (reason or "").replace("_", " ")
