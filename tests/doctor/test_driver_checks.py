"""Checks of the driver's libraries, with real shared objects and ldconfig."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpud import gpu_lock
from gpud.core.sample import Device, Failure, Inventory, Reason
from gpud.core.sections import CudaSettings
from gpud.core.settings import LOCK, NVML_LOCK
from gpud.doctor.checks.driver import driver, telemetry
from gpud.doctor.checks.libraries import libcuda
from gpud.doctor.machine import Machine
from tests.doctor.trees import (
    ADVICE,
    LINUX,
    NOW,
    OK,
    PROBLEM,
    STRAY_LIBRARIES,
    UNKNOWN,
    WSL2,
    expect,
    machine,
    make_dxg,
    report,
    with_libraries,
)
from tests.standins.build import build_libcuda, rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
DEVICE = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1)
GPU_OFF = WSL2 | {"/etc/wsl.conf": "[gpu]\nenabled=false\n"}
NVML = "libnvidia-ml.so.1"
STRAY = f"/{STRAY_LIBRARIES}/libcuda.so.1"


def test_a_stray_library_that_other_programs_get_is_a_problem(tmp_path: Path) -> None:
    """The tree is changed step by step; what other programs get is what the linker says."""
    made = with_libraries(tmp_path)
    expect(libcuda.look(made), OK, "/usr/lib/wsl/lib/libcuda.so.1", "CUDA 12")
    shadowed = replace(made, environ={"LD_LIBRARY_PATH": "/nowhere:/people/ada/old-cuda"})
    build_libcuda(tmp_path / "people/ada/old-cuda")
    evidence = "LD_LIBRARY_PATH makes other programs load /people/ada/old-cuda/libcuda.so"
    expect(libcuda.look(shadowed), PROBLEM, evidence)
    (tmp_path / "etc/ld.so.cache").unlink()
    unknown = "the linker does not know libcuda.so.1"
    expect(libcuda.look(made), ADVICE, unknown, fix="sudo ldconfig")
    made = with_libraries(tmp_path / "first", stray_first=True)
    both = (f"other programs load {STRAY}", "/usr/lib/wsl/lib/libcuda.so.1; CUDA")
    expect(libcuda.look(made), PROBLEM, *both, fix=f"dpkg -S {STRAY}")
    made = with_libraries(tmp_path / "second", stray_first=False)
    expect(libcuda.look(made), ADVICE, f"{STRAY} lies beside WSL's")
    stray = tmp_path / "second" / STRAY.lstrip("/")
    stray.rename(stray.with_name(NVML))
    expect(libcuda.look(made), ADVICE, f"/{STRAY_LIBRARIES}/{NVML} lies beside WSL's")


def test_a_driver_that_refuses_or_ends_its_process_is_a_problem(tmp_path: Path) -> None:
    refuses = with_libraries(tmp_path / "refuses", cuda="fail cuInit 100\n")
    crashes = with_libraries(tmp_path / "crashes", cuda="crash cuInit\n")
    for made, evidence in ((refuses, "cuInit"), (crashes, "ended the process that asked it")):
        finding = libcuda.look(made)
        expect(finding, PROBLEM, evidence)
        assert finding.fix


@pytest.mark.parametrize("files", [WSL2, LINUX])
def test_a_driver_that_takes_long_is_not_called_one_that_hangs(
    files: Mapping[str, str], tmp_path: Path
) -> None:
    slow = with_libraries(tmp_path, cuda="delay cuInit 2000\n")
    rewrite_script(tmp_path / "usr/lib/wsl/lib" / NVML, "delay nvmlInitWithFlags 2000\n")
    kernel = "proc/sys/kernel/osrelease"
    (tmp_path / kernel).write_text(files[f"/{kernel}"])
    for check in (libcuda, driver, telemetry):
        finding = check.look(replace(slow, command_limit_s=1.0))
        expect(finding, UNKNOWN, "no answer within 1 s", fix="ask again in a minute")


def test_a_driver_that_hangs_is_left_alone_in_wsl(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = f"log {tmp_path}/calls\nstall cuInit {tmp_path}/fifo\n"
    hangs = replace(with_libraries(tmp_path / "hangs", cuda=script), command_limit_s=1.0)
    expect(libcuda.look(hangs), UNKNOWN, "no answer within 1 s")
    (tmp_path / "fifo").write_text("the driver returns: nobody has ended the child")

    def ended() -> bool:
        return "cuDeviceGetCount" in (tmp_path / "calls").read_text().split()

    until(ended, "the rest of what the child was asked for")


def test_driver_is_left_alone_in_the_first_90_s_of_wsl(tmp_path: Path) -> None:
    made = with_libraries(tmp_path, cuda=f"log {tmp_path}/calls\n")
    (tmp_path / "proc/uptime").write_text("89.00 1.00\n")
    expect(libcuda.look(made), UNKNOWN, "not asked in the first 90 s of WSL")
    (tmp_path / ".dockerenv").touch()  # a container in WSL2 has the GPU of WSL2
    expect(libcuda.look(made), UNKNOWN, "not asked in the first 90 s of WSL")
    (tmp_path / ".dockerenv").unlink()
    assert not (tmp_path / "calls").exists()
    (tmp_path / "proc/uptime").write_text("91.00 1.00\n")
    expect(libcuda.look(made), OK, "CUDA 12")
    assert (tmp_path / "calls").exists()


def test_driver_is_not_asked_while_another_process_has_the_lock(tmp_path: Path) -> None:
    made = with_libraries(tmp_path, cuda=f"log {tmp_path}/calls\n")
    path = Path(made.settings.run_dir, LOCK)
    path.parent.mkdir(parents=True)
    fd, me = gpu_lock.open_lock(path), os.getpid()
    assert gpu_lock.take_lock(fd)
    gpu_lock.note_child(fd, me, 100.0, "launch on GPU-1")
    expect(libcuda.look(made), UNKNOWN, f"not asked: process {me} (launch on GPU-1)")
    gpu_lock.note_child(fd, me, -100.0, "launch on GPU-1")
    expect(libcuda.look(made), PROBLEM, "does not go away", fix="wsl --shutdown")
    assert not (tmp_path / "calls").exists()
    os.close(fd)
    expect(libcuda.look(made), OK, "CUDA 12")
    assert (tmp_path / "calls").exists()


def test_child_that_hangs_for_the_doctor_keeps_the_lock_until_it_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    made = with_libraries(tmp_path, cuda=f"stall cuInit {tmp_path}/fifo\n")
    path = Path(made.settings.run_dir, LOCK)
    path.parent.mkdir(parents=True)
    fd = gpu_lock.open_lock(path)
    expect(libcuda.look(replace(made, command_limit_s=1.0)), UNKNOWN, "no answer within 1 s")
    assert not gpu_lock.take_lock(fd)
    holder = gpu_lock.lock_holder(fd)
    assert holder is not None
    assert holder.what == "inventory"
    assert holder.overdue_s > time.monotonic() + made.settings.cuda.start_limit_s / 2
    descriptors = [name.readlink() for name in Path("/proc/self/fd").iterdir() if name.exists()]
    assert descriptors.count(path) == 1  # this test's own: the child alone has it
    expect(libcuda.look(made), UNKNOWN, f"not asked: process {holder.process.pid} (inventory)")
    (tmp_path / "fifo").write_text("the driver returns")
    until(lambda: gpu_lock.take_lock(fd), "the end of the child")
    os.close(fd)


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
    made = running(tmp_path, {"cuda": asdict(inventory)})
    expect(libcuda.look(made), OK, "CUDA 12.8, RTX")  # though the tree holds no library at all
    failed = Inventory(failure=Failure(Reason.NO_DEVICE, "no GPU offered", advice="do x"))
    assert libcuda.look(running(tmp_path, {"cuda": asdict(failed)})).fix == "do x"
    stray = build_libcuda(tmp_path / STRAY_LIBRARIES)
    document = {"cuda": asdict(Inventory((DEVICE,), "12.8", str(stray)))}
    expect(libcuda.look(running(tmp_path, document)), PROBLEM, "which is not WSL's")
    configured = {"cuda": CudaSettings(library=str(stray))}
    made = machine(tmp_path, WSL2, root=report(), agent=document, settings=configured)
    expect(libcuda.look(made), OK, "as configured")


@needs_root
def test_nvml_is_not_asked_beside_a_helper_that_stays_in_it(tmp_path: Path) -> None:
    made = with_libraries(tmp_path)
    make_dxg(tmp_path)
    path = Path(made.settings.run_dir, "agent", NVML_LOCK)
    path.parent.mkdir(parents=True)
    fd = gpu_lock.open_lock(path)
    assert gpu_lock.take_lock(fd)
    gpu_lock.note_child(fd, os.getpid(), 60.0, "nvml")
    library = tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    rewrite_script(library, f"log {tmp_path}/calls\n")
    for check in (driver, telemetry):
        assert f"process {os.getpid()} (nvml)" in check.look(made).evidence
    assert not (tmp_path / "calls").exists()
    os.close(fd)
    expect(telemetry.look(made), OK, "from NVML")
    assert (tmp_path / "calls").exists()


@needs_root
def test_nvml_answers_without_gpud_and_no_program_is_started(tmp_path: Path) -> None:
    made = with_libraries(tmp_path)
    started = tmp_path / "started"
    for name in ("usr/bin/nvidia-smi", "usr/lib/wsl/lib/nvidia-smi"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {started}\n")
        (tmp_path / name).chmod(0o755)
    expect(telemetry.look(made), OK, "from NVML")
    expect(driver.look(made), OK, "driver ", "WSL kernel 5.15.167.4")
    library = tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    rewrite_script(library, "fail nvmlInitWithFlags 9\n")
    expect(telemetry.look(made), OK, "none expected")  # there is no /dev/dxg
    make_dxg(tmp_path)
    expect(telemetry.look(made), ADVICE, "no gpud runs that could ask elsewhere", "(9)")
    assert not started.exists()
