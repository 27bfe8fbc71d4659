from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.measure import conditions
from gpud.agent.measure.conditions import Conditions, Power
from gpud.core.sample import Absent, Reading

ON_MAINS = Power(ac=True, battery_ratio=0.9)


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


def test_a_gpu_is_found_by_its_uuid_whatever_its_index() -> None:
    found = conditions.of(READINGS, "GPU-a", ON_MAINS)
    assert found == Conditions(
        clock_sm_hertz=2e9,
        utilization_gpu_ratio=0.02,
        throttle_reasons=frozenset({"power_cap", "thermal"}),
        ac=True,
        battery_ratio=0.9,
    )


def test_a_gpu_nvml_does_not_show_is_unread_and_the_power_still_known() -> None:
    found = conditions.of(READINGS, "MIG-1", ON_MAINS)
    assert found == Conditions(ac=True, battery_ratio=0.9, unread="no_such_gpu")


def test_a_uuid_that_is_withheld_is_nobodys() -> None:
    readings = of_gpu(0, uuid=Absent.UNSUPPORTED, pstate=0.0)
    assert conditions.of(readings, "unsupported", Power()).unread == "no_such_gpu"


def test_what_is_known_is_named_after_its_moment_and_the_rest_is_left_out() -> None:
    assert conditions.named("before", conditions.of(READINGS, "GPU-a", ON_MAINS)) == {
        "before.clock_sm_hertz": 2e9,
        "before.utilization_gpu_ratio": 0.02,
        "before.throttle_reasons": "power_cap,thermal",
        "before.ac": True,
        "before.battery_ratio": 0.9,
    }
    assert conditions.named("after", conditions.unread("hung", Power())) == {"after.unread": "hung"}


def test_clocks_that_nothing_holds_down_are_known_to_be_free() -> None:
    readings = of_gpu(0, uuid="GPU-a", throttle_reasons="none")
    found = conditions.of(readings, "GPU-a", Power())
    assert found.throttle_reasons == frozenset()
    assert conditions.named("after", found) == {"after.throttle_reasons": "none"}


def test_what_was_stored_is_read_back_without_the_charge() -> None:
    found = conditions.of(READINGS, "GPU-a", ON_MAINS)
    known = conditions.named("after", found) | {"before.pstate": 8, "after.pstate": "P0"}
    assert conditions.stored("after", known) == replace(found, battery_ratio=None)
    assert conditions.stored("after", {"after.pstate": True, "after.ac": 1}) == Conditions()


values = st.one_of(st.floats(allow_nan=False), st.text(max_size=5), st.sampled_from(Absent))
fields = st.sampled_from(["uuid", "pstate", "throttle_reasons", "memory_free_bytes", "name"])


@given(st.lists(st.builds(Reading, st.integers(0, 3), fields, values, st.just("nvml"))))
def test_any_readings_make_conditions_that_can_be_stored(readings: list[Reading]) -> None:
    named = conditions.named("before", conditions.of(readings, "GPU-a", Power()))
    assert all(isinstance(value, str | float | bool) for value in named.values())
    assert all(not isinstance(value, Absent) for value in named.values())
