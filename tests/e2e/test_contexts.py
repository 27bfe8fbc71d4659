"""GPU contexts that a real agent makes, as the stand-in driver counts them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpud import client
from gpud.requests import ContextsRequest, WaitLine
from tests.e2e.program import QUICK, Program, cuda, only, program
from tests.e2e.test_boot import WSL2
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUDGET = 8
SPENT = "GPU contexts of this boot are used up"


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def machine(gpud: Program, kernel: str, **schedule: float) -> Path:
    """Make a machine that is no longer young; return the file with a line for each context."""
    tree = gpud.home / "sysroot"
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "proc/sys/kernel/osrelease").write_text(kernel)
    (tree / "proc/uptime").write_text("5000.00 1.00\n")
    ledger = gpud.home / "ledger"
    ledger.touch()
    ledger.chmod(0o666)
    gpud.sysroot = str(tree)
    gpud.settings = {
        "schedule": QUICK["schedule"]
        | {"small_interval_s": 0.3, "large_interval_s": 0.3}
        | schedule,
        "probes": only("cpu_call", "launch"),
        "cuda": cuda(gpud.home, f"ledger {ledger}\n"),
    }
    return ledger


def made(ledger: Path) -> int:
    return len(ledger.read_text().splitlines())


def counted(gpud: Program) -> float:
    return gpud.value("gpud_gpu_contexts_total") or 0.0


def test_contexts_are_counted_over_a_restart_and_once_spent_only_a_person_makes_one(
    gpud: Program,
) -> None:
    ledger = machine(gpud, WSL2, context_budget=BUDGET)
    gpud.start()
    until(lambda: made(ledger) >= 3, "three contexts")
    gpud.stop()
    assert made(ledger) < BUDGET
    gpud.start()
    until(lambda: gpud.skips("launch", "contexts_spent"), "a spent budget")
    assert gpud.value("gpud_gpu_contexts_budget") == BUDGET
    until(lambda: counted(gpud) == BUDGET, "all of them in the count")
    before = made(ledger)
    assert BUDGET - before in {0, 1}, "one that was counted may have ended with the agent"
    until(lambda: SPENT in gpud.cli("status").stdout, "the spent budget in the status")
    gpud.more_runs("cpu_call", count=3)
    assert made(ledger) == before

    probe = gpud.cli("probe", "launch")
    assert probe.returncode == 0, probe.stderr
    assert f"gpud has made {BUDGET} GPU contexts since WSL started" in probe.stderr
    assert made(ledger) == before + 1
    until(lambda: counted(gpud) == BUDGET + 1, "the person's context in the count")

    (line,) = client.ask(gpud.run_dir, ContextsRequest(count=3))
    assert isinstance(line, WaitLine)
    assert f"gpud has made {BUDGET + 4} GPU contexts since WSL started" in line.message
    until(lambda: counted(gpud) == BUDGET + 4, "another program's contexts in the count")
    _, event = gpud.events("probe_requested")
    assert (event["contexts"], event["uid"]) == (3, os.geteuid())
