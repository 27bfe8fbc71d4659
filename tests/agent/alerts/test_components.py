"""Components that stay failed, unless a lost function explains them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gpud.agent.alerts.components import PATIENCE_S, RESTS_S, STAYS_S, Components
from gpud.core.clock import Instant
from gpud.core.health import Health, Level

FAILED = Health(Level.FAILED)
BUSY, WELL = Health(Level.DEGRADED), Health(Level.OK)


@dataclass
class Machine:
    state: Components = field(default_factory=Components)
    mono_s: float = 0.0
    lost: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    def are(self, health: Health, seconds: float, name: str = "dockerd") -> frozenset[str]:
        """Let a part be so for some seconds, looked at each second; give what is reported then."""
        for _ in range(int(seconds)):
            self.mono_s += 1
            now = Instant(1e9, self.mono_s)
            self.state.update({name: health}, now, lost=self.lost, pending=self.pending)
        return self.state.reported


def test_a_component_is_reported_after_two_minutes_and_until_it_is_well() -> None:
    machine = Machine()
    assert machine.are(FAILED, STAYS_S) == frozenset()
    assert machine.are(FAILED, 1) == {"dockerd"}
    assert machine.are(WELL, 1) == frozenset()


def test_a_component_that_fails_and_starts_again_all_the_time_is_failed() -> None:
    machine = Machine()
    for _ in range(9):
        machine.are(FAILED, 5)
        machine.are(BUSY, 10)
    assert machine.are(FAILED, 1) == {"dockerd"}
    assert machine.are(BUSY, RESTS_S + 1) == frozenset()


def test_what_was_reported_is_not_taken_back_because_a_function_may_be_lost_as_well() -> None:
    machine = Machine()
    assert machine.are(FAILED, STAYS_S + 1, "cuda") == {"cuda"}
    machine.pending = ("cuda",)
    assert machine.are(FAILED, 1, "cuda") == {"cuda"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cuda", "probes"), ("cuda", "devices"), ("nvml", "nvml"), ("container", "containers")],
)
def test_what_a_lost_function_says_is_not_said_again(kind: str, name: str) -> None:
    machine = Machine(lost=(kind,))
    assert machine.are(FAILED, 999, name) == frozenset()
    assert machine.are(FAILED, 999, "store") == {"store"}
    reported = Machine()
    reported.are(FAILED, 999, name)
    reported.lost = (kind,)
    assert reported.are(FAILED, 1, name) == frozenset()


def test_what_may_yet_be_a_lost_function_is_waited_for_and_not_for_ever() -> None:
    machine = Machine(pending=("cuda",))
    assert machine.are(FAILED, PATIENCE_S, "cuda") == frozenset()
    assert machine.are(FAILED, 1, "cuda") == {"cuda"}
