"""A WSL2 machine that has just started, that has made many GPU contexts, and that slept."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from gpud import client
from gpud.requests import ContextsRequest, WaitLine
from tests.e2e.program import QUICK, cuda, only, under_a_clock
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.program import Program

WSL2, LINUX = "6.6.87.2-microsoft-standard-WSL2\n", "6.1.0-28-amd64\n"
AGE_S, ENDLESS_S = 100.0, 3600.0  # older than the catalogue asks for on any GPU
SOON = {"small_interval_s": 3600.0, "large_interval_s": 3600.0}
"""A schedule whose only round is the one that waits for the grace."""


def started_ago(gpud: Program, age_s: float) -> None:
    """Give a machine with WSL2 its age."""
    tree = gpud.home / "sysroot"
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "proc/sys/kernel/osrelease").write_text(WSL2)
    (tree / "proc/uptime").write_text(f"{age_s:.2f} 1.00\n")
    gpud.sysroot = str(tree)


def just_booted(gpud: Program, grace_s: float) -> Path:
    """Say where the calls of its driver are logged."""
    started_ago(gpud, AGE_S)
    calls = gpud.home / "called/calls"
    calls.parent.mkdir()
    calls.parent.chmod(0o777)
    gpud.settings = {
        "gate": {"boot_grace_s": grace_s},
        "cuda": cuda(gpud.home, f"log {calls}\n"),
    }
    return calls


def test_no_cuda_call_is_made_in_the_grace_of_a_boot(gpud: Program) -> None:
    calls = just_booted(gpud, ENDLESS_S)
    gpud.start()
    begins_s = gpud.status_when(lambda d: d["gpu_from_s"], "the moment of GPU work")["gpu_from_s"]
    at = time.strftime("%H:%M:%S", time.localtime(begins_s))
    assert f"GPU work begins at {at}: WSL has just started" in gpud.cli("status").stdout
    until(gpud.runs, "a run on the CPU")
    assert gpud.value("gpud_probe_skips_total", probe="launch", reason="boot_grace") is None
    assert not calls.exists()


def test_gpu_is_measured_when_the_grace_is_over(gpud: Program) -> None:
    just_booted(gpud, AGE_S + 1)
    gpud.settings["schedule"] = SOON
    gpud.start()
    until(gpud.median, "a figure of the GPU")
    until(lambda: "GPU work begins at" not in gpud.cli("status").stdout, "a status without a wait")


def begin_probe(gpud: Program, grace_s: float) -> Path:
    calls = just_booted(gpud, grace_s)
    gpud.write_settings()
    gpud.run_dir.mkdir(parents=True)
    (gpud.run_dir / "gpu.lock").touch()
    return calls


def test_probe_by_hand_in_the_grace_of_a_boot_says_so_and_makes_no_cuda_call(
    gpud: Program,
) -> None:
    calls = begin_probe(gpud, ENDLESS_S)
    with gpud.begin("probe", "launch") as probe:
        assert probe.stderr is not None
        assert "GPU work begins at " in probe.stderr.readline()
        probe.send_signal(signal.SIGINT)
        out, _ = probe.communicate(timeout=LIMIT_S)
    assert "submit" not in out
    assert not calls.exists()


def test_probe_by_hand_measures_when_the_grace_of_a_boot_is_over(gpud: Program) -> None:
    begin_probe(gpud, AGE_S + 1)
    ran = gpud.cli("probe", "launch")
    assert ran.returncode == 0
    assert ran.stderr.startswith("GPU work begins at ")
    assert "submit" in ran.stdout


BUDGET = 8
SPENT = "GPU contexts of this boot are used up"


def contexts(ledger: Path) -> int:
    return len(ledger.read_text().splitlines())


def counted(gpud: Program) -> float:
    return gpud.value("gpud_gpu_contexts_total") or 0.0


def test_contexts_are_counted_over_a_restart_and_once_spent_only_a_person_makes_one(
    gpud: Program,
) -> None:
    started_ago(gpud, 5000.0)  # no longer young
    ledger = gpud.home / "ledger"
    ledger.touch()
    ledger.chmod(0o666)
    often = {"small_interval_s": 0.3, "large_interval_s": 0.3, "context_budget": BUDGET}
    gpud.settings = {
        "schedule": QUICK["schedule"] | often,
        "probes": only("cpu_call", "launch"),
        "cuda": cuda(gpud.home, f"ledger {ledger}\n"),
    }
    gpud.start()
    until(lambda: contexts(ledger) >= 3, "three contexts")
    gpud.stop()
    assert contexts(ledger) < BUDGET
    gpud.start()
    until(lambda: gpud.skips("launch", "contexts_spent"), "a spent budget")
    assert gpud.value("gpud_gpu_contexts_budget") == BUDGET
    until(lambda: counted(gpud) == BUDGET, "all of them in the count")
    before = contexts(ledger)
    assert BUDGET - before in {0, 1}, "one that was counted may have ended with the agent"
    until(lambda: SPENT in gpud.cli("status").stdout, "the spent budget in the status")
    gpud.more_runs("cpu_call", count=3)
    assert contexts(ledger) == before

    probe = gpud.cli("probe", "launch")
    assert probe.returncode == 0, probe.stderr
    assert f"gpud has made {BUDGET} GPU contexts since WSL started" in probe.stderr
    assert contexts(ledger) == before + 1
    until(lambda: counted(gpud) == BUDGET + 1, "the person's context in the count")

    (line,) = client.ask(gpud.run_dir, ContextsRequest(count=3))
    assert isinstance(line, WaitLine)
    assert f"gpud has made {BUDGET + 4} GPU contexts since WSL started" in line.message
    until(lambda: counted(gpud) == BUDGET + 4, "another program's contexts in the count")
    _, event = gpud.events("probe_requested")
    assert (event["contexts"], event["uid"]) == (3, os.geteuid())


NIGHT_S = 8 * 3600.0
HOURLY = {
    "telemetry_interval_s": 3600.0,
    "small_interval_s": 3600.0,
    "large_interval_s": 7200.0,
    "jitter_ratio": 0.0,
}


def jumps(gpud: Program) -> float:
    return gpud.value("gpud_clock_jumps_total") or 0.0


def test_after_a_night_asleep_there_is_one_catch_up_run_and_the_night_is_counted() -> None:
    with under_a_clock(schedule=HOURLY) as gpud:
        gpud.start()
        until(lambda: gpud.runs() == 1, "the first run")
        gpud.move(NIGHT_S)
        until(lambda: jumps(gpud) == 1, "the jump")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=60)
        until(lambda: gpud.runs() == 2, "the catch-up run")
        gpud.move(NIGHT_S - 3600)
        until(lambda: jumps(gpud) == 2, "the step back")
        assert gpud.value("gpud_vm_paused_seconds_total") == pytest.approx(NIGHT_S, abs=60)
        assert gpud.runs() == 2
