"""Back-off of repeated starts: pure, with the jitter as a value."""

from __future__ import annotations

from dataclasses import dataclass

JITTER_SHARE = 0.25
"""The part of a delay that the jitter may take away; the cap is therefore never passed."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Nothing before the first retry, then doubling from ``first_s`` up to ``longest_s``.

    What lived for ``well_after_s`` was well: its end counts as the first failure again.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    well_after_s: float = 30.0

    def failures(self, before: int, lived_s: float) -> int:
        """Count failures in a row, the present one included."""
        return 1 if lived_s >= self.well_after_s else before + 1

    def delay_s(self, failures: int, jitter: float) -> float:
        """Give the wait before the next start; ``jitter`` is in 0..1, ``failures`` from 0."""
        if failures <= 1:
            return 0.0
        full_s = min(self.first_s * 2.0 ** min(failures - 2, 30), self.longest_s)
        return full_s * (1.0 - JITTER_SHARE * jitter)
