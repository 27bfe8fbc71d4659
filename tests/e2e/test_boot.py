"""A WSL2 machine that has just started: no CUDA call before its grace is over."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.program import Program, cuda, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WSL2 = "6.6.87.2-microsoft-standard-WSL2\n"
AGE_S = 10.0


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def just_booted(gpud: Program, kernel: str = WSL2, *, grace_s: float) -> Path:
    """Give a machine ten seconds of age, and say where the calls of its driver are logged."""
    tree = gpud.home / "sysroot"
    (tree / "proc/sys/kernel").mkdir(parents=True)
    (tree / "proc/sys/kernel/osrelease").write_text(kernel)
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


def agent_json(gpud: Program) -> dict[str, Any]:
    path = gpud.run_dir / "agent/agent.json"
    until(path.exists, "the status of the agent")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_no_cuda_call_is_made_in_the_grace_of_a_boot(gpud: Program) -> None:
    calls = just_booted(gpud, grace_s=3600)
    gpud.start()
    begins_s = until(lambda: agent_json(gpud)["gpu_from_s"], "the moment of GPU work")
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(begins_s))
    assert f"GPU work begins at {at}: WSL has just started" in gpud.cli("status").stdout
    until(lambda: gpud.value("gpud_probe_runs_total", probe="cpu_call"), "a run on the CPU")
    assert gpud.value("gpud_probe_skips_total", probe="launch", reason="boot_grace") is None
    assert not calls.exists()


def test_gpu_is_measured_when_the_grace_of_a_boot_is_over(gpud: Program) -> None:
    just_booted(gpud, grace_s=AGE_S + 2)
    gpud.start()
    until(
        lambda: gpud.value(
            "gpud_probe_latency_median_seconds", gpu="0", probe="launch", mode="submit"
        ),
        "a figure of the GPU",
    )
    assert "GPU work begins at" not in gpud.cli("status").stdout


def test_probe_by_hand_in_the_grace_of_a_boot_says_so_and_makes_no_cuda_call(
    gpud: Program,
) -> None:
    calls = just_booted(gpud, grace_s=3600)
    gpud.write_settings()
    gpud.run_dir.mkdir(parents=True)
    (gpud.run_dir / "gpu.lock").touch()
    with gpud.begin("probe", "launch") as probe:
        assert probe.stderr is not None
        assert "GPU work begins at " in probe.stderr.readline()
        probe.send_signal(signal.SIGINT)
        out, _ = probe.communicate(timeout=60)
    assert "submit" not in out
    assert not calls.exists()


def test_probe_by_hand_measures_when_the_grace_of_a_boot_is_over(gpud: Program) -> None:
    calls = just_booted(gpud, grace_s=AGE_S + 2)
    gpud.write_settings()
    gpud.run_dir.mkdir(parents=True)
    (gpud.run_dir / "gpu.lock").touch()
    ran = gpud.cli("probe", "launch")
    assert ran.returncode == 0
    assert "submit" in ran.stdout
    assert "cuInit" in calls.read_text().split()


def test_plain_linux_has_no_grace(gpud: Program) -> None:
    calls = just_booted(gpud, "6.1.0-28-amd64\n", grace_s=3600)
    gpud.start()
    until(calls.exists, "a call of the driver")
    assert agent_json(gpud)["gpu_from_s"] is None
