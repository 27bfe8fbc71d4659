"""Conditions before and after a run: a real NVML helper, and a tree of power supplies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure import conditions
from gpud.agent.measure.conditions import SUPPLY_FILES, Conditions, Observer, parsed
from gpud.agent.telemetry.sources.nvml import HELPER
from gpud.core.sample import Absent, Condition, Reading
from tests.agent.telemetry.nvml_source import PATIENCE_S, telling
from tests.standins.build import build_libnvml

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
SECOND = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000001"


@pytest.fixture
def sysroot(tmp_path: Path) -> Path:
    return tmp_path / "sysroot"


def supply(sysroot: Path, name: str, **facts: str) -> None:
    folder = sysroot / "sys/class/power_supply" / name
    folder.mkdir(parents=True)
    for fact, text in facts.items():
        (folder / fact).write_text(f"{text}\n")


async def looked(
    sysroot: Path,
    library: Path | str,
    *uuids: str | None,
    command: tuple[str, ...] = HELPER,
) -> list[Conditions]:
    async with telling(library, command=command, deadline_s=PATIENCE_S) as nvml:
        observer = Observer(nvml.source, str(sysroot), patience_s=PATIENCE_S)
        return [await observer.look(uuid) for uuid in uuids]


async def test_conditions_of_a_gpu_are_read_by_its_uuid_with_the_machines_power(
    tmp_path: Path, sysroot: Path
) -> None:
    supply(sysroot, "AC1", type="Mains", online="0")
    supply(sysroot, "BAT1", type="Battery", status="Discharging", capacity="57")
    library = build_libnvml(
        tmp_path,
        "devices 2\ndevice.1.utilization_gpu_percent 88\ndevice.1.clock_sm_mhz 1380\n"
        "device.1.clocks_event_reasons 4\ndevice.1.power_mw none\n"
        "device.1.power_limit_mw 60000\ndevice.1.pcie_generation 3\ndevice.1.pcie_width 4\n",
    )
    first, second, foreign = await looked(sysroot, library, FIRST, SECOND, "GPU-x")
    assert (first.utilization_gpu_ratio, first.clock_sm_hertz) == (0.03, 210e6)
    assert second == Conditions(
        clock_sm_hertz=1380e6,
        clock_memory_hertz=405e6,
        pstate=8.0,
        temperature_celsius=41.0,
        power_watts=None,
        power_limit_watts=60.0,
        pcie_generation=3.0,
        pcie_width=4.0,
        utilization_gpu_ratio=0.88,
        memory_used_bytes=float(1 << 30),
        memory_free_bytes=float((8 << 30) - (1 << 30) - (200 << 20)),
        throttle_reasons=frozenset({"power_cap"}),
        ac=False,
        battery_ratio=0.57,
    )
    assert foreign == Conditions(ac=False, battery_ratio=0.57, unread="no_such_gpu")


async def test_without_nvml_the_reason_stands_and_the_cpu_asks_no_driver(sysroot: Path) -> None:
    missing = "/nonexistent/libnvidia-ml.so.1"
    assert await looked(sysroot, missing, FIRST) == [Conditions(unread="library_missing")]
    supply(sysroot, "AC", type="Mains", online="1")
    assert await looked(sysroot, missing, None, command=("/bin/false",)) == [Conditions(ac=True)]


ON_MAINS = Conditions(ac=True, battery_ratio=0.9)


def of_gpu(index: int, **fields: float | str | Absent) -> tuple[Reading, ...]:
    return tuple(Reading(index, name, value, "nvml") for name, value in fields.items())


READINGS = (
    *of_gpu(0, uuid="GPU-b", utilization_gpu_ratio=0.9, clock_sm_hertz=3e8, pstate=8.0),
    *of_gpu(
        1,
        uuid="GPU-a",
        utilization_gpu_ratio=0.02,
        clock_sm_hertz=2e9,
        power_watts=Absent.UNSUPPORTED,
        throttle_reasons="power_cap,thermal",
        name="never asked for",
    ),
)


def test_conditions_are_named_after_their_moment_and_read_back_without_the_charge() -> None:
    read = conditions.of(READINGS, "GPU-a", ON_MAINS)
    stored: dict[str, Condition] = {
        "before.clock_sm_hertz": 2e9,
        "before.utilization_gpu_ratio": 0.02,
        "before.throttle_reasons": "power_cap,thermal",
        "before.ac": True,
        "before.battery_ratio": 0.9,
    }
    assert conditions.named("before", read) == stored
    assert conditions.stored("before", stored) == replace(read, battery_ratio=None)
    spoilt: dict[str, Condition] = {"after.pstate": "P0", "after.ac": 1, "after.power_watts": True}
    assert conditions.stored("after", stored | spoilt) == Conditions()
    assert conditions.named("after", Conditions(unread="hung")) == {"after.unread": "hung"}


def test_uuid_that_is_withheld_is_no_gpus() -> None:
    readings = of_gpu(0, uuid=Absent.UNSUPPORTED, pstate=0.0)
    assert conditions.of(readings, "unsupported", Conditions()) == Conditions(unread="no_such_gpu")


values = st.one_of(st.floats(allow_nan=False), st.text(max_size=5), st.sampled_from(Absent))
fields = st.sampled_from(["uuid", "pstate", "throttle_reasons", "memory_free_bytes", "name"])


@given(st.lists(st.builds(Reading, st.integers(0, 3), fields, values, st.just("nvml"))))
def test_conditions_of_any_readings_can_be_stored(readings: list[Reading]) -> None:
    named = conditions.named("before", conditions.of(readings, "GPU-a", Conditions()))
    assert all(isinstance(value, str | float | bool) for value in named.values())
    assert all(not isinstance(value, Absent) for value in named.values())


MAINS = {"type": "Mains", "online": "1"}
UNPLUGGED = {"type": "Mains", "online": "0"}
SOCKET = {"type": "USB", "online": "0", "scope": "System"}
BATTERY = {"type": "Battery", "status": "Discharging", "capacity": "80", "present": "1"}
MOUSE = {"type": "Battery", "status": "Discharging", "capacity": "10", "scope": "Device"}


@pytest.mark.parametrize(
    ("supplies", "ac"),
    [
        ({}, None),
        ({"AC": MAINS}, True),
        ({"AC": UNPLUGGED}, None),
        ({"AC": MAINS, "BAT0": BATTERY}, True),
        ({"AC": UNPLUGGED, "BAT0": BATTERY}, False),
        ({"BAT0": BATTERY}, False),
        ({"BAT0": BATTERY | {"status": "Charging"}}, True),
        ({"BAT0": BATTERY | {"status": "Full"}}, True),
        ({"BAT0": BATTERY | {"status": "Not charging"}}, True),
        ({"BAT0": BATTERY | {"status": "Unknown"}}, None),
        ({"AC": UNPLUGGED, "BAT0": BATTERY | {"status": "Full"}}, False),
        ({"AC": UNPLUGGED, "BAT0": BATTERY | {"status": "Charging"}}, True),
        ({"AC": UNPLUGGED, "USB0": {"type": "USB", "online": "2"}, "BAT0": BATTERY}, True),
        ({"USB0": SOCKET, "USB1": SOCKET}, None),
        ({"USB0": SOCKET, "BAT0": BATTERY}, False),
        ({"USB0": SOCKET, "BAT0": BATTERY | {"status": "Full"}}, True),
        ({"BAT0": BATTERY, "BAT1": BATTERY | {"status": "Not charging"}}, False),
        ({"UPS": {"type": "UPS", "status": "Discharging"}}, False),
        ({"mouse": MOUSE}, None),
        ({"mouse": MOUSE, "AC": MAINS}, True),
        ({"BAT0": BATTERY | {"present": "0"}}, None),
        ({"odd": {}}, None),
        ({"BAT0": BATTERY | {"online": "1"}}, False),  # no plug
    ],
)
def test_mains_or_battery_by_what_the_supplies_say(
    supplies: dict[str, dict[str, str]],
    ac: bool | None,  # noqa: FBT001  # a column of the table above
) -> None:
    assert parsed(supplies).ac is ac


@pytest.mark.parametrize(
    ("capacity", "others", "ratio"),
    [
        *(("0", {}, 0.0), ("5", {}, 0.05), ("100", {}, 1.0)),
        ("80", {"BAT1": BATTERY | {"capacity": "40"}, "mouse": MOUSE}, 0.6),
        *((odd, {}, None) for odd in ("", "-5", "101", "80.5", "eighty", "\u00b2", "9" * 5000)),
    ],
)
def test_charge_of_all_the_machines_batteries_is_a_percentage_or_unknown(
    capacity: str, others: dict[str, dict[str, str]], ratio: float | None
) -> None:
    power = parsed({"BAT0": BATTERY | {"capacity": capacity}, **others})
    assert power.battery_ratio == (ratio and pytest.approx(ratio))


supply_words = st.one_of(
    st.sampled_from(["Mains", "USB", "Battery", "UPS", "0", "1", "2", "Full", "Charging", "100"]),
    st.text(max_size=5),
)


@given(
    st.dictionaries(
        st.text(max_size=4), st.dictionaries(st.sampled_from(SUPPLY_FILES), supply_words)
    )
)
def test_words_of_any_firmware_are_at_worst_unknown(
    supplies: dict[str, dict[str, str]],
) -> None:
    power = parsed(supplies)
    assert power.ac in {True, False, None}
    assert power.battery_ratio is None or 0 <= power.battery_ratio <= 1
    if not any(facts.get("type") in {"Battery", "UPS"} for facts in supplies.values()):
        assert power.ac is not False, "a machine without a battery cannot run on one"
