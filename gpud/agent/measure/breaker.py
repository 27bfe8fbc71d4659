"""Breaker: after a child hung, it says when GPU work is tried again. Pure, time as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gpud.core.report import ProcessRef
from gpud.document.machine import BreakerReport

FIRST_REST_S = 300.0
LONGEST_REST_S = 3600.0


class State(StrEnum):
    """What the breaker lets through."""

    CLOSED = "closed"  # everything
    OPEN = "open"  # nothing until the rest is over
    HALF_OPEN = "half_open"  # one run after the other, until one decides
    STUCK = "stuck"  # nothing while a child that hung has not gone


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed while ``streak`` is 0, else open until ``retry_at_s`` (monotonic), then half-open.

    While it is half-open, what hung before (``subject``) decides: it closes the breaker by ending,
    or opens it for twice as long by hanging again. Others that end in between decide nothing, since
    they may never come to the call that hung: listing the GPUs works on many a driver that hangs at
    the first launch.

    A process in ``left`` hung and is still there, killed in vain or left alone: nothing is let
    through until it is gone, and its end is the news that the driver came back, so no rest follows.
    """

    streak: int = 0
    retry_at_s: float = 0.0
    first_rest_s: float = FIRST_REST_S
    left: ProcessRef | None = None
    subject: str = ""

    def state(self, now_s: float) -> State:
        """Return what it lets through at this moment."""
        if self.left is not None:
            return State.STUCK
        if self.streak == 0:
            return State.CLOSED
        return State.HALF_OPEN if now_s >= self.retry_at_s else State.OPEN

    def after_hang(
        self, now_s: float, subject: str = "", left: ProcessRef | None = None
    ) -> Breaker:
        """Open for the first rest, doubling with every hang in a row up to the longest.

        ``left``: the process that hung and is still there.
        """
        rest_s = min(self.first_rest_s * 2.0 ** min(self.streak, 30), LONGEST_REST_S)
        return Breaker(self.streak + 1, now_s + rest_s, self.first_rest_s, left, subject=subject)

    def after_gone(self, now_s: float) -> Breaker:
        """Half-open at once: whatever held the process has let go of it."""
        return replace(self, left=None, retry_at_s=now_s)

    def after_end(self, now_s: float, subject: str = "") -> Breaker:
        """Close: the driver gave ``subject`` an answer, good or bad.

        An answer to another subject counts once what hung has not come for the longest rest: its
        probe may have been switched off since, or its GPU pulled out.
        """
        over = now_s >= self.retry_at_s + LONGEST_REST_S
        if self.streak and self.subject not in {"", subject} and not over:
            return self
        return Breaker(first_rest_s=self.first_rest_s)


def report(breaker: Breaker, before: BreakerReport, now_s: float, wall_s: float) -> BreakerReport:
    """Return the state of a breaker at a moment of both clocks, as it is published.

    What hung, the evidence and the fix are not the breaker's.
    """
    state = breaker.state(now_s)
    return BreakerReport(
        state=state,
        since_s=before.since_s if state is before.state else wall_s,
        hangs=breaker.streak,
        retry_s=wall_s + breaker.retry_at_s - now_s if state is State.OPEN else None,
        process=breaker.left,
    )
