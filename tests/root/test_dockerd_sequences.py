"""Replay of 10,000 random sequences of observations through dockerd's state machine.

``dockerd_sequences.txt.xz`` has one line a sequence: an action and a state for each step, the
policy, the restarts counted and what holds the next start. After a change that is meant to alter
them, ``python -m tests.root.test_dockerd_sequences`` in the repository's root writes it anew.
"""

from __future__ import annotations

import lzma
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.report import Owner, ProcessRef
from gpud.root.dockerd_facts import (
    Activity,
    Api,
    Containerd,
    DockerdCause,
    DockerdObservation,
    Exit,
    Limits,
    Memory,
    StartCondition,
)
from gpud.root.dockerd_step import POLICIES, step

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED = Path(__file__).with_name("dockerd_sequences.txt.xz")
SEQUENCES, STEPS = 10_000, 25
OFTEN = 1_000
"""Sequences of every run; ``-m soak`` plays all of them."""
LIMITS = Limits()
PORT_TAKEN = DockerdCause(
    "port_taken", "", "", frozenset({StartCondition.PORT, StartCondition.CONFIG}), "127.0.0.1:2375"
)
MISSING = DockerdCause("binary_missing", "", "", frozenset())
ACTIONS = {"nothing": ".", "start": "+", "terminate": "-", "kill": "!"}
"""Letters they are stored as; a state is stored as its first letter, ``stopping`` as ``t``."""


def advance(memory: Memory, look: dict[str, Any], policy: str) -> tuple[Memory, str, str]:
    """Give memory, action and state after one look: all that names the code under test."""
    runs = look["pid"] is not None
    observation = DockerdObservation(
        process=ProcessRef(look["pid"], 1) if runs else None,
        owner=Owner(look["owner"]),
        api=Api(look["api"]),
        obstacle=MISSING if look["obstacle"] else None,
        exit=None
        if runs or look["exit"] is None
        else Exit(look["exit"][0], look["exit"][1], cause=PORT_TAKEN if look["exit"][2] else None),
        jitter=look["jitter"],
        conditions={}
        if runs
        else {StartCondition.PORT: look["port"], StartCondition.CONFIG: look["config"]},
        containerd=Containerd(look["containerd"]) if look["containerd"] else None,
        activity=Activity(look["at_work"], look["cpu_s"], look["stopped"]) if runs else None,
        wall_s=look["wall_s"],
    )
    memory, action = step(memory, observation, POLICIES[policy], LIMITS, look["now_s"])
    return memory, action.value, memory.state.value


def counted(memory: Memory) -> str:
    restarts = ",".join(f"{why}={count}" for why, count in sorted(memory.restarts.items()))
    return f"{restarts or '-'} {memory.hold.cause.slug if memory.hold else '-'}"


class Machine:
    """A machine whose dockerd starts, hangs, dies, is killed and taken over at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pids = 1
        self.look: dict[str, Any] = {"now_s": 0.0, "wall_s": 1.8e9, "cpu_s": 0.0, "jitter": 0.0}
        self.look |= {"pid": None, "owner": "none", "api": "refused", "exit": None}
        self.look |= {"containerd": None, "at_work": False, "stopped": False}
        self.look |= {"obstacle": False, "port": "", "config": "a"}

    def follow(self, action: str) -> None:
        """Answer an action: mostly as wished."""
        lucky = self._rng.random() < 0.75
        if action == "start" and lucky:
            self._begin("gpud", self._rng.choice(("absent", "answers", "answers")))
        elif action == "start":
            self.look["exit"] = (1, None, self._rng.random() < 0.5)
        elif action in {"terminate", "kill"} and lucky:
            self._end(None, 9 if action == "kill" else 15)

    def pass_time(self) -> None:
        rng, look = self._rng, self.look
        passed_s = rng.choice((0.2, 1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 12.0, 35.0))
        asleep_s = rng.choice((40.0, 3600.0)) if rng.random() < 0.02 else 0.0
        worked_s = rng.choice((0.0, 0.0, 0.001, 0.01, 0.5)) * passed_s
        look["now_s"] = round(look["now_s"] + passed_s, 3)
        look["wall_s"] = round(look["wall_s"] + passed_s + asleep_s, 3)
        look["cpu_s"] = round(look["cpu_s"] + worked_s, 6)
        look["jitter"] = round(rng.random(), 3)
        if rng.random() < 0.35:
            self._alive() if look["pid"] is not None else self._gone()

    def _gone(self) -> None:
        rng, look = self._rng, self.look
        match rng.choice(("obstacle", "port", "config", "foreign", "stranger", "quiet")):
            case "obstacle":
                look["obstacle"] = not look["obstacle"]
            case "port":
                look["port"] = rng.choice(("", "17", "18"))
            case "config":
                look["config"] = rng.choice("abc")
            case "foreign":
                self._begin(rng.choice(("systemd", "docker_desktop", "other")), "answers")
            case "stranger":
                look.update(owner="other", api=rng.choice(("silent", "denied", "answers")))
            case _:
                look.update(owner="none", api=rng.choice(("refused", "absent")))

    def _alive(self) -> None:
        rng, look = self._rng, self.look
        match rng.choice(("end", "hang", "hang", "answer", "containerd", "work", "owner")):
            case "end":
                self._end(*rng.choice(((None, 9), (None, 15), (0, None), (1, None), (None, None))))
            case "hang":
                look["api"] = rng.choice(("silent", "silent", "refused", "absent"))
                look["stopped"] = rng.random() < 0.3
            case "answer":
                look.update(api=rng.choice(("answers", "answers", "denied")), stopped=False)
            case "containerd":
                states = (None, "listens", "own_is_gone", "own_is_gone", "other_is_gone")
                look["containerd"] = rng.choice(states)
            case "work":
                look["at_work"] = not look["at_work"]
            case _:
                look["owner"] = rng.choice(("gpud", "gpud", "systemd", "other_user"))

    def _begin(self, owner: str, api: str) -> None:
        self._pids += 1
        self.look.update(pid=self._pids, owner=owner, api=api)
        self.look.update(containerd="listens", at_work=False, stopped=False)

    def _end(self, code: int | None, signal: int | None) -> None:
        self.look.update(pid=None, owner="none", api="refused", containerd=None)
        self.look["exit"] = (code, signal, False)


def played(number: int) -> Iterator[tuple[str, str]]:
    """Play a sequence: what is stored of each step and of the end, with what led to it."""
    rng = random.Random(number)
    policy = rng.choices(tuple(POLICIES), (10, 8, 1, 1))[0]
    machine, memory = Machine(rng), Memory()
    for _ in range(STEPS):
        machine.pass_time()
        memory, action, state = advance(memory, machine.look, policy)
        letter = "t" if state == "stopping" else state[0]
        yield ACTIONS[action] + letter, f"{action}, {state}: {machine.look}"
        machine.follow(action)
    yield f" {policy} {counted(memory)}", "policy, restarts and what holds a start"


@pytest.mark.parametrize("count", [OFTEN, pytest.param(SEQUENCES, marks=pytest.mark.soak)])
def test_actions_and_states_of_random_sequences_are_those_stored(count: int) -> None:
    expected = lzma.decompress(EXPECTED.read_bytes()).decode().splitlines()
    assert len(expected) == SEQUENCES
    for number, stored in enumerate(expected[:count]):
        steps = list(played(number))
        if "".join(text for text, _ in steps) != stored:
            pairs = [*(stored[at : at + 2] for at in range(0, 2 * STEPS, 2)), stored[2 * STEPS :]]
            story = [
                f"{'   ' if text == pair else '>> '} stored {pair}, now {text}: {look}"
                for (text, look), pair in zip(steps, pairs, strict=True)
            ]
            raise AssertionError("\n".join([f"sequence {number} differs", *story]))


if __name__ == "__main__":
    lines = ["".join(text for text, _ in played(number)) for number in range(SEQUENCES)]
    EXPECTED.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
