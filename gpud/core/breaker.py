"""When GPU work may be tried again after a child hung: pure, with time as a value."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_REST_S = 300.0
LONGEST_REST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed while ``streak`` is 0, else open until ``retry_at_s`` (monotonic), then half-open.

    Half-open means one run is let through: it closes the breaker by ending, or opens it for twice
    as long by hanging again.
    """

    streak: int = 0
    retry_at_s: float = 0.0
    first_rest_s: float = FIRST_REST_S
    longest_rest_s: float = LONGEST_REST_S

    def allows(self, now_s: float) -> bool:
        """Say whether GPU work may start. Whether the hung process is gone is asked elsewhere."""
        return self.streak == 0 or now_s >= self.retry_at_s

    def after_hang(self, now_s: float) -> Breaker:
        """Open for the first rest, doubling with every hang in a row up to the longest."""
        rest_s = min(self.first_rest_s * 2.0 ** min(self.streak, 30), self.longest_rest_s)
        return Breaker(self.streak + 1, now_s + rest_s, self.first_rest_s, self.longest_rest_s)

    def after_end(self) -> Breaker:
        """Close: the driver gave an answer, good or bad."""
        return Breaker(0, 0.0, self.first_rest_s, self.longest_rest_s)
