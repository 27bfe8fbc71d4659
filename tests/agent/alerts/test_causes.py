"""What is named as a cause: only what became another with the figures, the likeliest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpud.agent.alerts.causes import likely
from gpud.agent.regression.causes import words
from gpud.core.alerts import Cause

if TYPE_CHECKING:
    from gpud.core.sample import Condition

Run = dict[str, "Condition"]

USUAL: Run = {
    "after.power_limit_watts": 115.0,
    "after.pcie_generation": 4.0,
    "after.pcie_width": 16.0,
    "after.throttle_reasons": "none",
    "after.clock_sm_hertz": 2.4e9,
    "after.clock_memory_hertz": 8e9,
    "after.temperature_celsius": 61.0,
    "after.ac": True,
    "before.memory_free_bytes": 7e9,
    "before.memory_used_bytes": 1e9,
    "clocksource": "tsc",
    "python": "3.11.2",
    "load_1m": 0.3,
}


def runs(other: Run | None = None, *, count: int = 9) -> list[Run]:
    """Give the same run so often, the usual one but for ``other``."""
    return [USUAL | (other or {})] * count


def kinds(before: list[Run], after: list[Run]) -> list[str]:
    return [cause.kind for cause in likely(before, after)]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"after.power_limit_watts": 80.0}, "power limit 115 W -> 80 W"),
        ({"after.pcie_width": 8.0}, "PCIe link gen 4 x16 -> gen 4 x8"),
        ({"after.pcie_generation": 3.0}, "PCIe link gen 4 x16 -> gen 3 x16"),
        (
            {"after.throttle_reasons": "thermal,hw_thermal", "after.temperature_celsius": 87.0},
            "clocks held down by nothing -> by hw_thermal, thermal (61 -> 87 degrees C)",
        ),
        ({"after.clock_sm_hertz": 1.9e9}, "SM clock 2400 MHz -> 1900 MHz"),
        ({"after.clock_memory_hertz": 5e9}, "memory clock 8000 MHz -> 5000 MHz"),
        ({"after.ac": False}, "power mains -> battery"),
        ({"before.memory_free_bytes": 5e7}, "free GPU memory 88% -> 5%"),
        ({"clocksource": "hyperv_clocksource_tsc_page"}, "clock source tsc -> hyperv_clocksource"),
        ({"python": "3.12.1"}, "Python 3.11.2 -> 3.12.1"),
        ({"load_1m": 3.9}, "load of the CPU 0.3 -> 3.9"),
    ],
)
def test_what_differs_is_named_with_both_sides(other: Run, told: str) -> None:
    (cause,) = likely(runs(), runs(other))
    assert words(cause).startswith(told)


@pytest.mark.parametrize(
    "other",
    [
        {"after.power_limit_watts": 112.0},
        {"after.clock_sm_hertz": 2.35e9},
        {"after.temperature_celsius": 85.0},
        {"after.throttle_reasons": "idle"},
        {"load_1m": 1.1},
        {"before.memory_free_bytes": 2e9},
    ],
)
def test_what_wanders_is_no_cause(other: Run) -> None:
    assert kinds(runs(), runs(other)) == ["nothing"]


def test_what_became_better_is_no_cause() -> None:
    worse = runs({"after.power_limit_watts": 80.0, "after.clock_sm_hertz": 1e9, "load_1m": 9.0})
    assert kinds(worse, runs()) == ["nothing"]


def test_what_was_so_before_as_well_is_no_cause() -> None:
    hot: Run = {
        "after.throttle_reasons": "thermal",
        "after.power_limit_watts": 60.0,
        "after.ac": False,
        "before.memory_free_bytes": 5e7,
    }
    assert kinds(runs(hot), runs(hot)) == ["nothing"]


def test_a_machine_that_is_always_busy_may_be_a_core_busier() -> None:
    assert kinds(runs({"load_1m": 4.0}), runs({"load_1m": 5.5})) == ["nothing"]


def test_clocks_that_are_held_down_in_the_cold_are_not_put_down_to_heat() -> None:
    (cause,) = likely(
        runs(), runs({"after.throttle_reasons": "thermal", "after.temperature_celsius": 55.0})
    )
    assert words(cause) == "clocks held down by nothing -> by thermal"


def test_what_is_not_known_on_one_side_stays_unsaid() -> None:
    assert kinds([{}] * 9, runs({"after.power_limit_watts": 1.0})) == ["nothing"]
    assert kinds(runs(), [{}] * 9) == ["nothing"]
    assert kinds(runs(count=4), runs({"after.power_limit_watts": 1.0})) == ["nothing"]
    odd: Run = {"after.power_limit_watts": "80", "load_1m": True, "python": 3}
    assert kinds(runs(), [USUAL | odd] * 9) == ["nothing"]


def test_a_few_odd_runs_decide_nothing() -> None:
    mixed = [*runs(count=6), *runs({"after.power_limit_watts": 60.0, "after.ac": False}, count=3)]
    assert kinds(runs(), mixed) == ["nothing"]
    several = [*runs(count=4), *runs({"python": "3.12"}, count=5), *runs({"python": "4"}, count=3)]
    assert kinds(runs(), several) == ["nothing"]
    rarely = [*runs(count=8), *runs({"after.throttle_reasons": "thermal"}, count=2)]
    assert kinds(runs(), rarely) == ["nothing"]


def test_a_link_that_sleeps_now_and_then_is_as_wide_as_before() -> None:
    asleep = [*runs({"after.pcie_generation": 1.0}, count=8), *runs(count=2)]
    assert kinds(runs(), asleep) == ["nothing"]
    assert kinds(asleep, runs({"after.pcie_generation": 3.0})) == ["pcie"]


def test_driver_kernel_and_windows_come_first_and_then_the_machine() -> None:
    changed = [Cause("windows_build", "26100.1", "26100.2"), Cause("driver_version", "1", "2")]
    found = likely(
        runs(),
        runs({"after.power_limit_watts": 80.0}),
        changed=changed,
        beside=[Cause("dxg", detail="the kernel's log: message lost")],
        cpu_slower=True,
    )
    assert [cause.kind for cause in found] == ["driver", "windows", "cpu", "dxg", "power_limit"]
    assert words(found[2]) == "the CPU's probes slowed as well: the machine, not the GPU"


def test_a_change_that_is_the_update_itself_is_not_told_again() -> None:
    kernel = Cause("kernel", "6.6.75-microsoft", "6.6.87-microsoft")
    found = likely(runs(), runs(), changed=[kernel], beside=[kernel])
    assert found == (Cause("kernel", "6.6.75", "6.6.87"),)


def test_kernels_that_differ_in_their_names_only_keep_them() -> None:
    (cause,) = likely([], [], changed=[Cause("kernel", "6.6.87-a", "6.6.87-b")])
    assert (cause.old, cause.new) == ("6.6.87-a", "6.6.87-b")


def test_where_nothing_differs_that_is_said() -> None:
    (cause,) = likely(runs(), runs(), cpu_slower=False)
    assert words(cause) == "nothing that gpud records changed"
