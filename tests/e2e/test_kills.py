"""SIGKILL for any of the three processes, at any moment, many times over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
from typing import TYPE_CHECKING

from tests.e2e.program import Program, alive, children_of, cuda, nvml, program
from tests.waiting import until

if TYPE_CHECKING:
    from tests.dockerd import PrivateDockerd

ROUNDS = 8
ROUNDS_PER_RUN = 4
"""In one of so many rounds the kill comes after another committed run."""
MOST_LOOKS = 12
"""Answers of the agent until the kill: which one it is, is left to chance."""
SCHEDULE = {
    "telemetry_interval_s": 0.3,
    "small_interval_s": 0.5,
    "large_interval_s": 2.0,
    "jitter_ratio": 0.0,
}


def committed(gpud: Program) -> set[int]:
    """The runs another process can already read: what has been promised to last."""
    path = gpud.home / "var/lib/gpud/gpud.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as history:
        return {row[0] for row in history.execute("SELECT id FROM runs")}


def descendants(pid: int) -> list[int]:
    below = children_of(pid)
    return below + [each for child in below for each in descendants(child)]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def agent_is_back(gpud: Program, old: int) -> bool:
    return gpud.agent_pid() not in {None, old} and gpud.status() is not None


def one_kill(gpud: Program, victim: str) -> None:
    """Kill a child, the agent or the supervisor; wait until all is back and nothing is left."""
    assert gpud.process is not None
    agent = until(gpud.agent_pid, "an agent")
    below = descendants(agent)
    if victim == "child":
        for pid in below[:1]:
            kill(pid)
        return
    if victim == "agent":
        kill(agent)
    else:
        gpud.process.kill()
        gpud.process.wait()
        gpud.start()
    until(lambda: agent_is_back(gpud, agent), "the next agent")
    until(lambda: not any(alive(pid) for pid in (agent, *below)), "no orphan")


def test_kills_lose_nothing_and_leave_no_orphan_and_no_second_dockerd(
    dockerd: PrivateDockerd,
) -> None:
    chance, stored = random.Random(20), set[int]()
    with program(dockerd=dockerd.settings(), schedule=SCHEDULE) as gpud:
        gpud.settings |= {"cuda": cuda(gpud.home, "launch_ns 2000\n"), "nvml": nvml(gpud.home)}
        gpud.start()
        gpud.health("cuda", 0)
        gpud.health("dockerd", 0)
        first = dockerd.dockerds()
        assert len(first) == 1
        for number in range(ROUNDS):
            until(gpud.status, f"HTTP in round {number}")
            if number % ROUNDS_PER_RUN == 0:
                newest = max(stored, default=0)
                until(lambda newest=newest: max(committed(gpud), default=0) > newest, "another run")  # type: ignore[misc]
            for _ in range(chance.randrange(MOST_LOOKS)):
                gpud.status()
            stored |= committed(gpud)
            one_kill(gpud, chance.choice(["root", "agent", "child"]))
            assert stored <= committed(gpud)
            assert dockerd.dockerds() == first
        assert len(stored) >= ROUNDS / ROUNDS_PER_RUN
        path = gpud.home / "var/lib/gpud/gpud.db"
        with contextlib.closing(sqlite3.connect(path)) as history:
            assert history.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert "Traceback" not in gpud.console()
