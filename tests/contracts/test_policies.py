"""Every policy of dockerd: total, pure, and harmless whatever it asks for."""

from __future__ import annotations

from typing import get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import Owner, ProcessRef
from gpud.core.sections import DockerdSettings
from gpud.root.dockerd_facts import (
    Action,
    Activity,
    Api,
    Containerd,
    DockerdObservation,
    DockerdState,
    Limits,
    Memory,
    StartCondition,
)
from gpud.root.dockerd_rules import binary_missing
from gpud.root.dockerd_step import POLICIES, step

LIMITS = Limits()

OBSERVATIONS = st.builds(
    DockerdObservation,
    process=st.none() | st.builds(ProcessRef, st.integers(2, 5), st.integers(1, 3)),
    owner=st.sampled_from(Owner),
    api=st.sampled_from(Api),
    obstacle=st.none() | st.just(binary_missing("dockerd")),
    conditions=st.dictionaries(st.sampled_from(StartCondition), st.sampled_from(["", "a", "b"])),
    containerd=st.none() | st.sampled_from(Containerd),
    activity=st.none() | st.builds(Activity, active=st.booleans(), cpu_s=st.floats(0, 1e6)),
    wall_s=st.none() | st.floats(0, 2e9),
    jitter=st.floats(0, 1),
)


def test_policies_are_those_that_the_settings_name() -> None:
    assert tuple(POLICIES) == get_args(get_type_hints(DockerdSettings)["policy"])


@given(
    name=st.sampled_from(sorted(POLICIES)),
    looks=st.lists(st.tuples(OBSERVATIONS, st.floats(0.05, 60)), max_size=30),
)
def test_a_policy_is_total_and_says_the_same_of_the_same(
    name: str, looks: list[tuple[DockerdObservation, float]]
) -> None:
    memory, now_s = Memory(), 0.0
    for observation, passed_s in looks:
        now_s += passed_s
        decide = POLICIES[name]
        request = decide(observation, memory, LIMITS, now_s)
        assert request is decide(observation, memory, LIMITS, now_s)
        assert isinstance(request, Action)
        memory, action = step(memory, observation, decide, LIMITS, now_s)
        assert isinstance(memory.state, DockerdState)
        if action is Action.START:
            assert observation.process is None
            assert observation.obstacle is None


@given(observation=OBSERVATIONS, name=st.sampled_from(["observe", "off"]))
def test_watching_touches_nothing(observation: DockerdObservation, name: str) -> None:
    assert POLICIES[name](observation, Memory(), LIMITS, 1e6) is Action.NOTHING


@given(observation=OBSERVATIONS)
def test_auto_leaves_alone_what_somebody_else_owns(observation: DockerdObservation) -> None:
    if observation.owner not in (Owner.GPUD, Owner.NONE):
        assert POLICIES["auto"](observation, Memory(), LIMITS, 1e6) is Action.NOTHING
