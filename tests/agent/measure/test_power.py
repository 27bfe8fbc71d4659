from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure.conditions import SUPPLY_FILES, Power, parsed

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
    ],
)
def test_mains_or_battery_is_told_from_what_the_supplies_say(
    supplies: dict[str, dict[str, str]],
    ac: bool | None,  # noqa: FBT001  # a column of the table above
) -> None:
    assert parsed(supplies).ac is ac


def test_the_charge_is_that_of_all_the_machines_batteries() -> None:
    found = parsed({"BAT0": BATTERY, "BAT1": BATTERY | {"capacity": "40"}, "mouse": MOUSE})
    assert found.ac is False
    assert found.battery_ratio == pytest.approx(0.6)


@pytest.mark.parametrize(("capacity", "ratio"), [("0", 0.0), ("5", 0.05), ("100", 1.0)])
def test_a_battery_may_be_empty_and_full(capacity: str, ratio: float) -> None:
    assert parsed({"BAT0": BATTERY | {"capacity": capacity}}).battery_ratio == ratio


def test_a_battery_that_says_it_is_online_is_no_plug() -> None:
    assert parsed({"BAT0": BATTERY | {"online": "1", "status": "Discharging"}}).ac is False


@pytest.mark.parametrize("capacity", ["", "-5", "101", "80.5", "eighty", "²", "9" * 5000])
def test_a_charge_that_is_none_is_not_known(capacity: str) -> None:
    assert parsed({"BAT0": BATTERY | {"capacity": capacity}}) == Power(ac=False)


words = st.one_of(
    st.sampled_from(["Mains", "USB", "Battery", "UPS", "0", "1", "2", "Full", "Charging", "100"]),
    st.text(max_size=5),
)


@given(st.dictionaries(st.text(max_size=4), st.dictionaries(st.sampled_from(SUPPLY_FILES), words)))
def test_nothing_a_firmware_may_write_is_more_than_unknown(
    supplies: dict[str, dict[str, str]],
) -> None:
    found = parsed(supplies)
    assert found.ac in {True, False, None}
    assert found.battery_ratio is None or 0 <= found.battery_ratio <= 1
    if not any(facts.get("type") in {"Battery", "UPS"} for facts in supplies.values()):
        assert found.ac is not False, "a machine without a battery cannot run on one"
