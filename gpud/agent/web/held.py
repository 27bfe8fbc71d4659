"""What was made for one who asked, and serves everybody for a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

T = TypeVar("T")

HOLDS_S: Final = 1.0
"""However many ask, so long nothing is made anew."""


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """An answer, and when it was made. Units: CLOCK_MONOTONIC."""

    made: T
    at_mono_s: float
    of: Snapshot | None = None  # the only one it serves; None: it may be behind

    def holds(self, now: Instant, of: Snapshot | None = None) -> bool:
        """Say whether it is still what whoever asks shall see."""
        return self.of is of and 0 <= now.mono_s - self.at_mono_s < HOLDS_S
