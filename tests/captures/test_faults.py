"""What the catalogue of known faults has on a recorded machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from gpud.agent.capture.faults import matched
from tests.captures.replay import load

if TYPE_CHECKING:
    from gpud.agent.capture.record import Capture

PANIC = "wsl-12476-hmgrtable-panic"


def desktop(**changed: Any) -> Capture:
    """Return a machine with the kernel 5.15.167.4."""
    return replace(load("wsl2-desktop"), **changed)


@pytest.mark.parametrize(
    ("name", "entry", "state"),
    [
        ("wsl2-driver-510", "nvml-wsl-old-driver", "applies"),  # by the driver
        ("wsl2-laptop-hybrid", "win-576.02-stale-temp", "applies"),
        ("wsl2-two-driver-folders", "wslg-728-shutdown-freeze", "applies"),  # by Windows' build
    ],
)
def test_without_a_running_gpud_the_recorded_versions_decide(
    name: str, entry: str, state: str
) -> None:
    assert matched(load(name))[entry] == state
    assert entry not in matched(desktop())


def test_a_running_gpud_knows_better_what_was_seen() -> None:
    fault = {"id": "wsl-1", "state": "seen"}
    assert matched(desktop(status={"known_faults": [fault]})) == {"wsl-1": "seen"}


@pytest.mark.parametrize("status", [None, {}, {"known_faults": 3}, {"known_faults": []}])
def test_a_status_without_faults_costs_nothing(status: object) -> None:
    assert matched(desktop(status=status)) == {PANIC: "applies"}


def test_a_machine_of_which_nothing_was_recorded_has_none() -> None:
    assert matched(desktop(files={}, programs={})) == {}
