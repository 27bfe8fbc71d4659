"""Which failed parts are told of: those that stay failed, and are not said by a lost function."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpud.core.clock import Instant
from gpud.core.health import Health, Level
from gpud.core.unwell import PATIENCE_S, RESTS_S, STAYS_S, Unwell, alert, step

FAILED = Health(Level.FAILED, "down", "the \x1b[31mdisk\nis full", "free it")
BUSY, WELL = Health(Level.DEGRADED), Health(Level.OK)


@dataclass
class Parts:
    state: Unwell = field(default_factory=Unwell)
    mono_s: float = 0.0
    lost: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    def are(self, health: Health, seconds: float, name: str = "dockerd") -> frozenset[str]:
        """Let a part be so for some seconds, looked at each second; give what is told then."""
        for _ in range(int(seconds)):
            self.mono_s += 1
            now = Instant(1e9, self.mono_s)
            self.state = step(self.state, {name: health}, now, lost=self.lost, pending=self.pending)
        return self.state.told


def test_a_part_is_told_of_after_two_minutes_and_until_it_is_well() -> None:
    parts = Parts()
    assert parts.are(FAILED, STAYS_S) == frozenset()
    assert parts.are(FAILED, 1) == {"dockerd"}
    assert parts.are(WELL, 1) == frozenset()


def test_a_part_that_is_well_for_a_moment_begins_anew() -> None:
    parts = Parts()
    for _ in range(9):
        parts.are(FAILED, STAYS_S - 10)
        assert parts.are(WELL, 1) == frozenset()


def test_a_part_that_fails_and_starts_again_all_the_time_is_failed() -> None:
    parts = Parts()
    for _ in range(9):
        parts.are(FAILED, 5)
        parts.are(BUSY, 10)
    assert parts.are(FAILED, 1) == {"dockerd"}
    assert parts.are(BUSY, RESTS_S + 1) == frozenset()


def test_what_was_told_is_not_taken_back_because_a_function_may_be_lost_as_well() -> None:
    parts = Parts()
    assert parts.are(FAILED, STAYS_S + 1, "cuda") == {"cuda"}
    parts.pending = ("cuda",)
    assert parts.are(FAILED, 1, "cuda") == {"cuda"}


def test_a_degraded_part_is_nobodys_concern() -> None:
    assert Parts().are(BUSY, 999) == frozenset()


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cuda", "probes"), ("cuda", "devices"), ("nvml", "nvml"), ("container", "containers")],
)
def test_what_a_lost_function_says_is_not_said_again(kind: str, name: str) -> None:
    parts = Parts(lost=(kind,))
    assert parts.are(FAILED, 999, name) == frozenset()
    assert parts.are(FAILED, 999, "store") == {"store"}
    told = Parts()
    told.are(FAILED, 999, name)
    told.lost = (kind,)
    assert told.are(FAILED, 1, name) == frozenset()


def test_what_may_yet_be_a_lost_function_is_waited_for_and_not_for_ever() -> None:
    parts = Parts(pending=("cuda",))
    assert parts.are(FAILED, PATIENCE_S, "cuda") == frozenset()
    assert parts.are(FAILED, 1, "cuda") == {"cuda"}


def test_its_words_are_one_harmless_line_with_the_fix() -> None:
    told = alert("store", FAILED, 5.0)
    assert told.summary == "store has failed: the \\x1b[31mdisk\\x0ais full"
    assert (told.fix, told.labels) == ("free it", {"component": "store"})
    assert alert("x", Health(Level.FAILED), 5.0).summary == "x has failed: it does not say why"
