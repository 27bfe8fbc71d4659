"""A dockerd that cannot start, under every policy and owner: how often it is tried, what is shown.

The state machine alone, in model time; ``test_dockerd_foreign.py`` does it with a real dockerd.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpud.core.health import Health, Level
from gpud.core.report import DockerdReport, Owner, ProcessRef
from gpud.root import report
from gpud.root.dockerd_facts import (
    OURS_TO_KEEP,
    Action,
    Api,
    Containerd,
    DockerdCause,
    DockerdObservation,
    DockerdState,
    Exit,
    Limits,
    Memory,
    StartCondition,
)
from gpud.root.dockerd_rules import binary_missing, socket_taken
from gpud.root.dockerd_step import POLICIES, step
from tests.agent.state.folding import START, dockerd_seen
from tests.events import folded

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = Limits()
TICK_S = 0.1
MINUTE = 600  # ticks
MOST_STARTS = 9
"""In a minute: at 0, at once, and after 1, 2, 4 ... s less a quarter at random."""
BROKEN = DockerdCause(
    "config_invalid", "daemon.json: no", "correct it", frozenset({StartCondition.CONFIG})
)
UNEXPLAINED = Exit(code=1, log=("failed to start daemon: the moon is in the wrong house",))
EXPLAINED = replace(UNEXPLAINED, cause=BROKEN)


@dataclass
class Machine:
    """A world in which each dockerd of ours ends after ``lives`` looks."""

    policy: str
    owner: Owner  # while none of ours runs
    exit: Exit = UNEXPLAINED
    lives: int = 0
    answers: bool = False
    obstacle: DockerdCause | None = None
    memory: Memory = field(default_factory=Memory)
    starts: int = 0

    def looks(self, ticks: int) -> Iterator[tuple[DockerdObservation, DockerdReport]]:
        left, ended = 0, None
        for tick in range(ticks):
            if left:
                api = Api.ANSWERS if self.answers else Api.ABSENT
                observation = DockerdObservation(ProcessRef(1000 + self.starts, 1), Owner.GPUD, api)
                left -= 1
                ended = None if left else self.exit
            else:
                observation = DockerdObservation(
                    None, self.owner, Api.REFUSED, self.obstacle, ended
                )
                observation = replace(
                    observation, conditions={StartCondition.CONFIG: "same"}, jitter=1.0
                )
                ended = None
            decide = POLICIES[self.policy]
            self.memory, action = step(self.memory, observation, decide, LIMITS, tick * TICK_S)
            if action is Action.START:
                self.starts += 1
                left, ended = self.lives, self.exit
            facts = report.Facts(log="/var/log/gpud/dockerd.log")
            yield (
                observation,
                report.dockerd(self.memory, observation, policy=self.policy, facts=facts),
            )

    def minute(self) -> list[DockerdReport]:
        return [status for _, status in self.looks(MINUTE)]


def health(status: DockerdReport) -> Health | None:
    """What the agent publishes of dockerd after root's report."""
    earlier = dockerd_seen(**structs.asdict(status))
    return folded(START, earlier).health.get("dockerd")


every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))
every_owner = pytest.mark.parametrize("owner", list(Owner))


@every_policy
@every_owner
@pytest.mark.parametrize(("lives", "answers"), [(0, 0), (2, 1)])
def test_a_dockerd_that_cannot_start_is_backed_off(
    policy: str, owner: Owner, lives: int, answers: int
) -> None:
    machine = Machine(policy, owner, lives=lives, answers=bool(answers))
    last = machine.minute()[-1]
    if policy in {"observe", "off"} or (policy == "auto" and owner not in OURS_TO_KEEP):
        assert machine.starts == 0
    else:
        assert 5 <= machine.starts <= MOST_STARTS
        assert machine.memory.failures >= 5
        assert last.state == DockerdState.CRASHLOOP
        assert "the moon is in the wrong house" in (last.detail or "")
        assert "/var/log/gpud/dockerd.log" in (last.fix or "")


@every_policy
@every_owner
@pytest.mark.parametrize("lives", [0, 3])
def test_a_cause_that_another_start_cannot_mend_is_tried_once_and_shown(
    policy: str, owner: Owner, lives: int
) -> None:
    machine = Machine(policy, owner, EXPLAINED, lives)
    last = machine.minute()[-1]
    if policy == "manage" or (policy == "auto" and owner in OURS_TO_KEEP):
        assert machine.starts == 1
        assert (last.state, last.reason, last.detail) == (
            "misconfigured",
            BROKEN.slug,
            "daemon.json: no",
        )
        assert "correct it" in (last.fix or "")
    else:
        assert machine.starts == 0


@every_policy
@every_owner
def test_a_missing_program_is_shown_to_whoever_would_have_it_started(
    policy: str, owner: Owner
) -> None:
    machine = Machine(policy, owner, obstacle=binary_missing("dockerd"))
    last = machine.minute()[-1]
    assert machine.starts == 0
    if policy == "manage" or (policy == "auto" and owner in OURS_TO_KEEP):
        assert (last.state, last.reason) == ("misconfigured", "binary_missing")
        assert (last.fix or "").endswith("docker.io; gpud then starts dockerd")
    else:
        assert last.state == "absent"


MENDED_BY_GPUD = {"hung", "stopping"}
PROCESS = st.none() | st.builds(ProcessRef, st.integers(2, 4), st.integers(1, 2))
LOOKS = st.builds(
    DockerdObservation,
    process=PROCESS,
    owner=st.sampled_from(Owner),
    api=st.sampled_from(Api),
    obstacle=st.none() | st.sampled_from([binary_missing("x"), socket_taken("/s", "python3")]),
    exit=st.none() | st.sampled_from([Exit(), UNEXPLAINED, EXPLAINED]),
    jitter=st.floats(0, 1),
    conditions=st.dictionaries(st.sampled_from(StartCondition), st.sampled_from(["", "a", "b"])),
    containerd=st.none() | st.sampled_from(Containerd),
)
FACTS = st.builds(
    report.Facts,
    trouble=st.none() | st.just("cannot start dockerd: Exec format error"),
    unreachable=PROCESS,
    log=st.just("/var/log/gpud/dockerd.log"),
)


@given(
    policy=st.sampled_from(sorted(POLICIES)),
    looks=st.lists(st.tuples(LOOKS, st.floats(0.05, 60), FACTS), max_size=15),
)
def test_nothing_is_shown_as_degraded_or_failed_without_a_cause(
    policy: str, looks: list[tuple[DockerdObservation, float, report.Facts]]
) -> None:
    memory, now_s = Memory(), 0.0
    for observation, passed_s, facts in looks:
        now_s += passed_s
        memory, _ = step(memory, observation, POLICIES[policy], LIMITS, now_s)
        status = report.dockerd(memory, observation, policy=policy, facts=facts)
        shown = health(status)
        assert shown is not None
        if shown.level > Level.OK:
            assert status.reason
            assert status.detail
        if shown.level is Level.FAILED:
            assert shown.fix or shown.reason in MENDED_BY_GPUD


ABSENT = [DockerdObservation(None, owner, Api.REFUSED) for owner in (Owner.NONE, Owner.SYSTEMD)]
YOUNG = [DockerdObservation(ProcessRef(number, 1), Owner.GPUD, Api.ABSENT) for number in (2, 3)]
THEIRS = [
    DockerdObservation(ProcessRef(4, 1), Owner.SYSTEMD, api) for api in (Api.ABSENT, Api.ANSWERS)
]
ENDED = [
    replace(observation, exit=exit_) for observation in ABSENT for exit_ in (UNEXPLAINED, EXPLAINED)
]


@pytest.mark.parametrize("cycle", [[0, 2, 0], [0, 4, 0], [0, 4, 1], [1, 2, 1], [0, 2, 4], [0, 5]])
def test_foreign_dockerd_that_comes_and_goes_makes_no_storm(cycle: list[int]) -> None:
    looks = [[*ABSENT, *YOUNG, *THEIRS][number] for number in cycle]
    memory, starts = Memory(), 0
    for tick in range(MINUTE):
        observation = looks[tick % len(looks)]
        memory, action = step(memory, observation, POLICIES["manage"], LIMITS, tick * TICK_S)
        starts += action is Action.START
    assert 1 <= starts <= MINUTE * TICK_S + 1


def test_an_owner_without_a_process_is_no_failure_and_its_end_is_worth_a_start() -> None:
    memory, action = Memory(), Action.NOTHING
    auto = POLICIES["auto"]
    for now_s, observation in ((0.0, ABSENT[1]), (1.0, ABSENT[1]), (2.0, ABSENT[0])):
        memory, action = step(memory, observation, auto, LIMITS, now_s)
    assert (action, memory.failures, memory.restarts) == (Action.START, 0, {"taken_over": 1})
    memory, _ = step(memory, ENDED[1], auto, LIMITS, 3.0)
    for now_s, observation in ((4.0, ABSENT[1]), (5.0, ABSENT[1]), (6.0, ABSENT[0])):
        memory, action = step(memory, observation, auto, LIMITS, now_s)
    assert (action, memory.failures) == (Action.START, 1)
    assert memory.restarts == {"taken_over": 1, "start_failed": 1}
