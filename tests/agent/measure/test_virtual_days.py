"""GPU contexts of whole days, as the stand-in driver counts them: real children, virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.measure.virtual_days import Machine
from tests.e2e.program import Program, only, program
from tests.e2e.test_boot import LINUX, WSL2

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_S, DAY_S = 3600.0, 86400.0
ONE_PROBE = only("launch")


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def assert_counted(machine: Machine) -> None:
    """The agent has counted what its driver has."""
    assert machine.count["contexts"] == machine.contexts


@pytest.mark.parametrize(
    ("hours", "least", "most"), [(3, 24, 32), pytest.param(24, 140, 160, marks=pytest.mark.soak)]
)
def test_day_of_wsl2_makes_at_most_160_contexts_with_a_restart_and_runs_by_hand(
    gpud: Program, monkeypatch: pytest.MonkeyPatch, hours: int, least: int, most: int
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes=ONE_PROBE)
    machine.live(hours / 4 * HOUR_S, by_hand=[hours / 8 * HOUR_S])
    before = machine.contexts
    assert machine.count["rounds"] == before - machine.runs_by_hand
    machine.run_by_hand()
    assert machine.contexts == before + 1
    machine.live(hours * 3 / 4 * HOUR_S)
    assert least <= machine.contexts <= most
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_day_of_plain_linux_makes_a_context_a_round(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, LINUX, probes=ONE_PROBE)
    machine.live(DAY_S)
    assert machine.contexts == machine.count["rounds"] == pytest.approx(1440, abs=20)
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_week_of_wsl2_makes_at_most_300_contexts_with_a_restart_and_two_runs_by_hand_each_day(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes=ONE_PROBE)
    for _ in range(7):
        machine.live(DAY_S, by_hand=[8 * HOUR_S])
        machine.run_by_hand()
    assert machine.runs_by_hand == 14
    assert 220 <= machine.contexts <= 300
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_day_of_wsl2_with_all_probes_makes_a_context_a_round(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes={})
    machine.live(DAY_S)
    assert 140 <= machine.contexts <= 160
    assert_counted(machine)
