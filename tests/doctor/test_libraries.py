"""Which driver library is really loaded, with real shared objects and the real ldconfig."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from gpud.core.sample import Device, Failure, Inventory, Reason
from gpud.core.sections import Cuda
from gpud.doctor import libraries
from gpud.doctor.checks import driver, libcuda, libnvml
from gpud.doctor.finding import Verdict
from tests.doctor.trees import LINUX, WSL2, machine, report
from tests.standins.build import build_libcuda, build_libnvml

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Finding
    from gpud.doctor.machine import Machine

OK, UNKNOWN, ADVICE, PROBLEM = Verdict.OK, Verdict.UNKNOWN, Verdict.ADVICE, Verdict.PROBLEM
WSL_LIB, STRAY = "usr/lib/wsl/lib", "usr/lib/x86_64-linux-gnu"


def said(found: Finding, verdict: Verdict, *words: str) -> None:
    assert found.verdict is verdict, found
    for word in words:
        assert word in found.evidence, found


def wsl2(tree: Path, *, stray_first: bool | None = None, cuda: str = "") -> Machine:
    """A WSL2 with both libraries; a stray libcuda comes first or second in the linker's cache."""
    made = machine(tree, WSL2 | {"/etc/ld.so.conf": _conf(stray_first)})
    build_libcuda(tree / WSL_LIB, cuda)
    build_libnvml(tree / WSL_LIB)
    if stray_first is not None:
        build_libcuda(tree / STRAY)
    ldconfig(tree)
    return made


def _conf(stray_first: bool | None) -> str:  # noqa: FBT001
    order = [f"/{STRAY}", f"/{WSL_LIB}"] if stray_first else [f"/{WSL_LIB}", f"/{STRAY}"]
    return "\n".join(order) + "\n"


def ldconfig(tree: Path) -> None:
    for name in (STRAY, WSL_LIB, "lib", "usr/lib"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    program = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    assert program is not None
    subprocess.run([program, "-r", str(tree)], check=True, capture_output=True)


def test_wsls_own_library_is_loaded_and_its_gpus_are_named(tmp_path: Path) -> None:
    found = libcuda.look(wsl2(tmp_path))
    said(found, OK, "/usr/lib/wsl/lib/libcuda.so.1", "CUDA 12")


def test_a_stray_library_that_other_programs_get_is_a_problem_though_gpud_is_right(
    tmp_path: Path,
) -> None:
    found = libcuda.look(wsl2(tmp_path, stray_first=True))
    said(
        found,
        PROBLEM,
        "other programs load /usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1; CUDA",
    )
    assert "dpkg -S /usr/lib/x86_64-linux-gnu/libcuda.so.1" in (found.fix or "")


def test_a_stray_library_that_nobody_gets_is_advice(tmp_path: Path) -> None:
    said(libcuda.look(wsl2(tmp_path, stray_first=False)), ADVICE, "lies beside WSL's")


def test_a_variable_of_the_shell_that_shadows_wsls_library_is_named(tmp_path: Path) -> None:
    made = wsl2(tmp_path)
    build_libcuda(tmp_path / "people/ada/old-cuda")
    shadowed = replace(made, environ={"LD_LIBRARY_PATH": "/nowhere:/people/ada/old-cuda"})
    found = libcuda.look(shadowed)
    said(
        found, PROBLEM, "LD_LIBRARY_PATH makes other programs load /people/ada/old-cuda/libcuda.so"
    )


def test_a_linker_that_does_not_know_wsls_library_is_advice(tmp_path: Path) -> None:
    made = wsl2(tmp_path)
    (tmp_path / "etc/ld.so.cache").unlink()
    found = libcuda.look(made)
    said(found, ADVICE, "the linker does not know libcuda.so.1")
    assert "sudo ldconfig" in (found.fix or "")


def test_a_driver_that_refuses_is_a_problem_with_its_own_words(tmp_path: Path) -> None:
    found = libcuda.look(wsl2(tmp_path, cuda="fail cuInit 100\n"))
    said(found, PROBLEM, "cuInit")
    assert found.fix


def test_a_driver_that_hangs_is_cut_off_by_the_child_itself(tmp_path: Path) -> None:
    said(libcuda.look(wsl2(tmp_path, cuda="hang cuInit\n")), PROBLEM, "does not answer")


def test_driver_is_not_asked_in_the_first_minute_of_wsl(tmp_path: Path) -> None:
    made = wsl2(tmp_path, cuda=f"log {tmp_path}/calls\n")
    (tmp_path / "proc/uptime").write_text("59.00 1.00\n")
    said(libcuda.look(made), UNKNOWN, "not asked in the first 60 s of WSL")
    assert not (tmp_path / "calls").exists()
    (tmp_path / "proc/uptime").write_text("61.00 1.00\n")
    said(libcuda.look(made), OK, "CUDA 12")
    assert (tmp_path / "calls").exists()


def test_the_running_agent_is_asked_before_the_driver(tmp_path: Path) -> None:
    device = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1)
    told = asdict(Inventory((device,), "12.8", "/usr/lib/wsl/lib/libcuda.so.1"))
    running = machine(tmp_path, WSL2, root=report(), agent={"cuda": told})
    said(libcuda.look(running), OK, "CUDA 12.8, RTX")  # though the tree holds no library at all
    failed = asdict(Inventory(failure=Failure(Reason.NO_DEVICE, "no GPU offered", advice="do x")))
    broken = machine(tmp_path, WSL2, root=report(), agent={"cuda": failed})
    assert libcuda.look(broken).fix == "do x"
    said(libcuda.look(replace(broken, agent={})), UNKNOWN, "not looked yet")


def test_a_library_that_gpud_itself_took_from_elsewhere_is_a_problem(tmp_path: Path) -> None:
    made = machine(tmp_path, WSL2)
    stray = build_libcuda(tmp_path / STRAY)
    seen = Inventory((Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1),), "12.8", str(stray))
    found = libcuda.judged(made, seen, libraries.files(made, libcuda.NAME, ""))
    said(found, PROBLEM, "which is not WSL's")
    configured = libraries.files(made, libcuda.NAME, str(stray))
    said(libcuda.judged(made, seen, configured), OK, "as configured")


def test_nvml_is_the_file_that_the_kernel_has_mapped(tmp_path: Path) -> None:
    said(libnvml.look(wsl2(tmp_path)), OK, "/usr/lib/wsl/lib/libnvidia-ml.so.1")


def test_the_drivers_version_comes_from_nvml(tmp_path: Path) -> None:
    found = driver.look(wsl2(tmp_path))
    said(found, OK, "driver ", "WSL kernel 5.15.167.4")


def test_without_a_driver_only_wsl_is_wrong(tmp_path: Path) -> None:
    assert libnvml.look(machine(tmp_path / "linux", LINUX)).verdict is OK
    assert driver.look(machine(tmp_path / "linux", LINUX)).verdict is OK
    assert libcuda.look(machine(tmp_path / "linux", LINUX)).verdict is OK
    for check in (libnvml, driver, libcuda):
        assert check.look(machine(tmp_path / "wsl", WSL2)).verdict is PROBLEM


@pytest.mark.parametrize("tree", [LINUX, WSL2], ids=["linux", "wsl"])
def test_a_configured_library_that_is_not_there_is_a_problem_everywhere(
    tmp_path: Path, tree: dict[str, str]
) -> None:
    made = machine(tmp_path, tree)
    place = Cuda(library="/nonexistent/lib.so.1")
    wrong = replace(made, settings=replace(made.settings, cuda=place, nvml=place))
    for name, check in (("cuda", libcuda), ("nvml", libnvml)):
        found = check.look(wrong)
        said(found, PROBLEM, "/nonexistent/lib.so.1")
        assert found.fix == f"correct [{name}] library in gpud.toml, or leave it out"


def test_a_kernel_that_is_too_old_for_wsl_is_told() -> None:
    said(driver.kernel("4.19.128-microsoft-standard"), ADVICE, "is old")
