"""SIGKILL for any of the three processes, at any moment, many times over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, alive, children_of, cuda, nvml, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd

ROUNDS = 12
ROUNDS_PER_RUN = 4
"""In one of so many rounds the kill comes after another committed run."""


@pytest.fixture
def gpud(dockerd: PrivateDockerd) -> Iterator[Program]:
    with program(dockerd=dockerd.settings()) as made:
        made.settings |= {
            "cuda": cuda(made.home, "launch_ns 2000\n"),
            "nvml": nvml(made.home),
            "schedule": {
                "telemetry_interval_s": 0.3,
                "small_interval_s": 0.5,
                "large_interval_s": 2.0,
                "jitter_ratio": 0.0,
            },
        }
        yield made


def committed(gpud: Program) -> set[int]:
    """The runs another process can already read: what has been promised to last."""
    path = gpud.home / "var/lib/gpud/gpud.db"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as history:
        return {row[0] for row in history.execute("SELECT id FROM runs")}


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [below for child in found for below in descendants(child)]


def agent_is_back(gpud: Program, old: int) -> bool:
    pid = gpud.agent_pid()
    return pid is not None and pid != old and gpud.status() is not None


@pytest.mark.timeout(300)
def test_kills_lose_nothing_and_leave_no_orphan_and_no_second_dockerd(
    gpud: Program, dockerd: PrivateDockerd
) -> None:
    chance = random.Random(20)
    gpud.start()
    gpud.health("cuda", 0)
    gpud.health("dockerd", 0)
    [kept_dockerd] = dockerd.dockerds()
    kept: set[int] = set()
    for round_number in range(ROUNDS):
        assert gpud.process is not None
        agent = until(gpud.agent_pid, f"an agent in round {round_number}")
        until(gpud.status, f"HTTP in round {round_number}")
        if round_number % ROUNDS_PER_RUN == 0:
            until(
                lambda kept=kept: committed(gpud) - kept,  # type: ignore[misc]
                f"another run in round {round_number}",
            )
        time.sleep(chance.uniform(0, 0.3))  # the random moment
        kept |= committed(gpud)
        below = descendants(agent)
        victim = chance.choice(["root", "agent", "child"])
        if victim == "child":
            with contextlib.suppress(ProcessLookupError):
                for pid in below[:1]:
                    os.kill(pid, signal.SIGKILL)
            continue
        if victim == "agent":
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)
            until(
                lambda agent=agent: agent_is_back(gpud, agent),  # type: ignore[misc]
                f"the agent back in round {round_number}",
            )
        else:
            gpud.process.kill()
            gpud.process.wait()
            gpud.start()
            until(
                lambda agent=agent: agent_is_back(gpud, agent),  # type: ignore[misc]
                f"gpud back in round {round_number}",
            )
        gone = [agent, *below]
        until(
            lambda gone=gone: not any(alive(pid) for pid in gone),  # type: ignore[misc]
            f"no orphan of round {round_number}",
        )
        assert kept <= committed(gpud)
        assert dockerd.dockerds() == [kept_dockerd]
    assert len(kept) >= ROUNDS / ROUNDS_PER_RUN
    path = Path(gpud.home, "var/lib/gpud/gpud.db")
    with contextlib.closing(sqlite3.connect(path)) as history:
        assert history.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert "Traceback" not in gpud.console()
