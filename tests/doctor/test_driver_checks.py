"""Checks of the driver's libraries, with real shared objects and ldconfig."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gpud.core.sample import Device, Inventory
from gpud.core.sections import CudaSettings
from gpud.doctor.checks.libraries import libcuda
from tests.doctor.trees import (
    ADVICE,
    NOW,
    OK,
    PROBLEM,
    STRAY_LIBRARIES,
    UNKNOWN,
    WSL2,
    expect,
    machine,
    report,
    with_libraries,
)
from tests.standins.build import build_libcuda

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.machine import Machine

WELL = {"health": {"cuda": {"level": 0}}}
DEVICE = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1)
NVML = "libnvidia-ml.so.1"
STRAY = f"/{STRAY_LIBRARIES}/libcuda.so.1"


def test_a_stray_library_that_other_programs_get_is_a_problem(tmp_path: Path) -> None:
    """The tree is changed step by step; what other programs get is what the linker says."""
    own = asdict(Inventory((DEVICE,), "12.8", "/usr/lib/wsl/lib/libcuda.so.1"))
    made = with_libraries(tmp_path, agent={"cuda": own} | WELL)
    expect(libcuda.look(made), OK, "/usr/lib/wsl/lib/libcuda.so.1; CUDA 12.8, RTX")
    shadowed = replace(made, environ={"LD_LIBRARY_PATH": "/nowhere:/people/ada/old-cuda"})
    build_libcuda(tmp_path / "people/ada/old-cuda")
    evidence = "LD_LIBRARY_PATH makes other programs load /people/ada/old-cuda/libcuda.so"
    expect(libcuda.look(shadowed), PROBLEM, evidence)
    (tmp_path / "etc/ld.so.cache").unlink()
    unknown = "the linker does not know libcuda.so.1"
    expect(libcuda.look(made), ADVICE, unknown, fix="sudo ldconfig")
    made = with_libraries(tmp_path / "first", stray_first=True, agent={"cuda": own} | WELL)
    both = (f"other programs load {STRAY}", "/usr/lib/wsl/lib/libcuda.so.1; CUDA")
    expect(libcuda.look(made), PROBLEM, *both, fix=f"dpkg -S {STRAY}")
    made = with_libraries(tmp_path / "second", stray_first=False, agent={"cuda": own} | WELL)
    expect(libcuda.look(made), ADVICE, f"{STRAY} lies beside WSL's")
    stray = tmp_path / "second" / STRAY.lstrip("/")
    stray.rename(stray.with_name(NVML))
    expect(libcuda.look(made), ADVICE, f"/{STRAY_LIBRARIES}/{NVML} lies beside WSL's")


def test_agent_of_a_wsl_that_has_just_started_asks_no_driver_before_a_moment(
    tmp_path: Path,
) -> None:
    young = running(tmp_path, {"gpu_from_s": NOW.wall_s + 42.0})
    at = time.strftime("%H:%M:%S", time.localtime(NOW.wall_s + 42.0))
    expect(libcuda.look(young), UNKNOWN, f"not asked before {at}: WSL has just started")
    older = running(tmp_path, {"gpu_from_s": NOW.wall_s - 1.0})
    expect(libcuda.look(older), UNKNOWN, "the agent has not looked yet")


def running(tree: Path, document: dict[str, Any]) -> Machine:
    return machine(tree, WSL2, root=report(), agent=document)


def test_running_agent_comes_before_the_driver(tmp_path: Path) -> None:
    inventory = Inventory((DEVICE,), "12.8", f"{tmp_path}/usr/lib/wsl/lib/libcuda.so.1")
    made = running(tmp_path, {"cuda": asdict(inventory)} | WELL)
    expect(libcuda.look(made), OK, "CUDA 12.8, RTX")  # though the tree holds no library at all
    failed = {"level": 2, "reason": "no_device", "detail": "no GPU offered", "fix": "do x"}
    finding = libcuda.look(running(tmp_path, {"health": {"cuda": failed}}))
    expect(finding, PROBLEM, "no GPU offered", fix="do x")
    stray = build_libcuda(tmp_path / STRAY_LIBRARIES)
    document = {"cuda": asdict(Inventory((DEVICE,), "12.8", str(stray)))} | WELL
    expect(libcuda.look(running(tmp_path, document)), PROBLEM, "which is not WSL's")
    configured = {"cuda": CudaSettings(library=str(stray))}
    made = machine(tmp_path, WSL2, root=report(), agent=document, settings=configured)
    expect(libcuda.look(made), OK, "as configured")
