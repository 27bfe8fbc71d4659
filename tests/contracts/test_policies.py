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
    Limits,
    Memory,
    StartCondition,
)
from gpud.root.dockerd_rules import binary_missing
from gpud.root.dockerd_step import POLICIES

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


@given(observation=OBSERVATIONS)
def test_auto_leaves_alone_what_somebody_else_owns(observation: DockerdObservation) -> None:
    if observation.owner not in (Owner.GPUD, Owner.NONE):
        assert POLICIES["auto"](observation, Memory(), LIMITS, 1e6) is Action.NOTHING
