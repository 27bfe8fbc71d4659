"""A driver call that no signal ends, through the whole program and a restart of its agent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gpud.agent import platform
from gpud.core import advice
from gpud.core.advice import Situation
from tests.e2e.program import alive, cuda, program
from tests.fuse import stalling, usable
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse"),
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

KILLED_WITHIN_S = 120.0
"""Six budgets of the inventory, and the time a killed process is given."""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_stuck_child_is_reported_survives_the_agent_and_ends_by_itself() -> None:
    with program() as gpud, stalling(gpud.home / "stalling") as stalled:
        gpud.settings = {"cuda": cuda(gpud.home, f"stall cuInit {stalled.path}\n")}
        gpud.start()
        health = gpud.health("gpu", 2, "stuck", within_s=KILLED_WITHIN_S)
        assert health["fix"] == advice.words(Situation.HUNG, advice.of(platform.facts("/")))
        breaker = gpud.status_when(lambda d: d["breaker"]["process"], "the process")["breaker"]
        pid = breaker["process"]["pid"]
        assert state(pid) == "D"
        assert gpud.value("gpud_gpu_stuck") == 1
        old = gpud.agent_pid()
        assert old is not None
        os.kill(old, signal.SIGKILL)
        until(lambda: gpud.agent_pid() not in {old, None}, "another agent")
        health = gpud.health("gpu", 2, "stuck")
        assert str(pid) in health["detail"]
        gpud.more_runs()
        assert alive(pid)
        stalled.answer()
        gpud.health("gpu", 0, within_s=60)
        assert gpud.value("gpud_breaker_state", state="closed") == 1
        assert not alive(pid)
        until(gpud.median, "a launch")
