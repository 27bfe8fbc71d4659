"""A machine without an NVIDIA GPU, or with one switched off, has no problem with its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.sections import Cuda
from gpud.core.settings import Settings
from gpud.doctor.checks import driver, dxg, libcuda, libnvml, telemetry
from gpud.doctor.finding import Verdict
from gpud.doctor.machine import Kind
from tests.doctor.trees import LINUX, WSL2, machine, report

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

OK, ADVICE, PROBLEM = Verdict.OK, Verdict.ADVICE, Verdict.PROBLEM
CHECKS = [driver, libcuda, telemetry]  # libnvml loads into this process: see tests/captures
OFF = WSL2 | {"/etc/wsl.conf": "[gpu]\nenabled=false\n"}
SWITCHED_OFF = "[gpu] enabled=false in wsl.conf switches the GPU off"
NO_DRIVER = "Windows offers a GPU, and has no NVIDIA driver"


def agent(level: int, reason: str, exposed: str = "yes") -> dict[str, Any]:
    """What a running agent says where neither NVML nor CUDA has a library."""
    missing = {"reason": "library_missing", "detail": "not there", "fix": "install it"}
    health = {"level": level, "reason": reason, "detail": NO_DRIVER, "fix": "for one, install it"}
    reading = {"gpu": None, "field": "exposed", "source": "dxg", "value": exposed, "absent": None}
    failure = {"reason": "library_missing", "detail": "not there", "advice": "install it"}
    return {
        "health": {"cuda": health, "nvml": health},
        "cuda": {"devices": [], "failure": failure},
        "telemetry": {"level": "dxg", "sources": {"nvml": missing}, "readings": [reading]},
    }


@pytest.mark.parametrize("check", CHECKS)
def test_where_the_agent_expects_none_there_is_no_problem(
    check: ModuleType, tmp_path: Path
) -> None:
    made = machine(tmp_path, WSL2, root=report(), agent=agent(0, "no_gpu"))
    assert check.look(made).verdict is OK
    assert NO_DRIVER in check.look(made).evidence


@pytest.mark.parametrize("check", CHECKS)
def test_where_it_expects_one_the_missing_driver_is_a_problem(
    check: ModuleType, tmp_path: Path
) -> None:
    made = machine(tmp_path, WSL2, root=report(), agent=agent(2, "library_missing"))
    assert check.look(made).verdict is PROBLEM


@pytest.mark.parametrize("check", CHECKS)
def test_one_that_is_switched_off_is_no_problem_without_an_agent_too(
    check: ModuleType, tmp_path: Path
) -> None:
    found = check.look(machine(tmp_path, OFF))
    assert found.verdict is OK, found
    assert SWITCHED_OFF in found.evidence


@pytest.mark.parametrize("check", [libcuda, libnvml])
def test_a_configured_library_is_expected_to_load_all_the_same(
    check: ModuleType, tmp_path: Path
) -> None:
    own = Cuda(library="/nonexistent/library.so.1")
    settings = Settings(home=str(tmp_path / "home"), sysroot=str(tmp_path), cuda=own, nvml=own)
    assert check.look(machine(tmp_path, OFF, settings=settings)).verdict is PROBLEM


def test_the_switch_is_told_though_the_device_stays() -> None:
    found = dxg.judged(Kind.CHARACTER, usable=True, enabled=False)
    assert (found.verdict, found.evidence) == (ADVICE, f"there: {SWITCHED_OFF}")


def test_plain_linux_knows_no_such_switch(tmp_path: Path) -> None:
    files = LINUX | {"/etc/wsl.conf": OFF["/etc/wsl.conf"]}
    assert machine(tmp_path, files).no_gpu is None
