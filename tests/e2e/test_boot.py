"""A WSL2 machine that has just started: no CUDA call before its grace is over."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.program import Program, cuda, program
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WSL2, LINUX = "6.6.87.2-microsoft-standard-WSL2\n", "6.1.0-28-amd64\n"
AGE_S, ENDLESS_S = 100.0, 3600.0  # older than the catalogue asks for on any GPU
SOON = {"small_interval_s": 3600.0, "large_interval_s": 3600.0}
"""A schedule whose only round is the one that waits for the grace."""


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def just_booted(gpud: Program, grace_s: float) -> Path:
    """Give a machine its age, and say where the calls of its driver are logged."""
    tree = gpud.home / "sysroot"
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "proc/sys/kernel/osrelease").write_text(WSL2)
    (tree / "proc/uptime").write_text(f"{AGE_S:.2f} 1.00\n")
    calls = gpud.home / "called/calls"
    calls.parent.mkdir()
    calls.parent.chmod(0o777)
    gpud.sysroot = str(tree)
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
