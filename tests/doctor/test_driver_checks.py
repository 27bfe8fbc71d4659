"""Checks of the driver: the libraries, with real shared objects and ldconfig, and telemetry."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.advice import Platform, Situation, words
from gpud.core.sample import Device, Failure, Inventory, Reason
from gpud.core.sections import CudaSettings, TelemetrySettings
from gpud.core.telemetry import LEVELS
from gpud.doctor.checks.driver import driver, telemetry
from gpud.doctor.checks.libraries import libcuda
from gpud.doctor.machine import Machine
from tests.doctor.trees import (
    ADVICE,
    LINUX,
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
from tests.standins.build import build_libcuda, rewrite_script
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Check, Verdict

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
DEVICE = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 1)
GPU_OFF = WSL2 | {"/etc/wsl.conf": "[gpu]\nenabled=false\n"}
NVML = "libnvidia-ml.so.1"
STRAY = f"/{STRAY_LIBRARIES}/libcuda.so.1"


# libraries


def test_wsls_own_library_is_loaded_and_its_gpus_are_named(tmp_path: Path) -> None:
    finding = libcuda.look(with_libraries(tmp_path))
    expect(finding, OK, "/usr/lib/wsl/lib/libcuda.so.1", "CUDA 12")


def test_a_stray_library_that_other_programs_get_is_a_problem(tmp_path: Path) -> None:
    finding = libcuda.look(with_libraries(tmp_path, stray_first=True))
    expect(finding, PROBLEM, f"other programs load {STRAY}", "/usr/lib/wsl/lib/libcuda.so.1; CUDA")
    assert f"dpkg -S {STRAY}" in (finding.fix or "")


def test_a_stray_library_that_no_program_gets_is_advised_on(tmp_path: Path) -> None:
    made = with_libraries(tmp_path, stray_first=False)
    expect(libcuda.look(made), ADVICE, f"{STRAY} lies beside WSL's")
    (tmp_path / STRAY.lstrip("/")).rename(tmp_path / STRAY_LIBRARIES / NVML)
    expect(libcuda.look(made), ADVICE, f"/{STRAY_LIBRARIES}/{NVML} lies beside WSL's")


def test_a_variable_of_the_shell_that_shadows_wsls_library_is_named(tmp_path: Path) -> None:
    environ = {"LD_LIBRARY_PATH": "/nowhere:/people/ada/old-cuda"}
    made = with_libraries(tmp_path, environ=environ)
    build_libcuda(tmp_path / "people/ada/old-cuda")
    evidence = "LD_LIBRARY_PATH makes other programs load /people/ada/old-cuda/libcuda.so"
    expect(libcuda.look(made), PROBLEM, evidence)


def test_a_linker_that_does_not_know_wsls_library_is_advised_on(tmp_path: Path) -> None:
    made = with_libraries(tmp_path)
    (tmp_path / "etc/ld.so.cache").unlink()
    finding = libcuda.look(made)
    expect(finding, ADVICE, "the linker does not know libcuda.so.1")
    assert "sudo ldconfig" in (finding.fix or "")


def test_a_driver_that_refuses_or_hangs_is_a_problem(tmp_path: Path) -> None:
    refuses = with_libraries(tmp_path / "refuses", cuda="fail cuInit 100\n")
    os.mkfifo(tmp_path / "fifo")
    script = f"log {tmp_path}/calls\nstall cuInit {tmp_path}/fifo\n"
    hangs = replace(with_libraries(tmp_path / "hangs", cuda=script), command_limit_s=1.0)
    for made, evidence in ((refuses, "cuInit"), (hangs, "does not answer")):
        finding = libcuda.look(made)
        expect(finding, PROBLEM, evidence)
        assert finding.fix
    (tmp_path / "fifo").write_text("the driver returns: nobody has ended the child")

    def ended() -> bool:
        return "cuDeviceGetCount" in (tmp_path / "calls").read_text().split()

    until(ended, "the rest of what the child was asked for")


def test_driver_is_left_alone_in_the_first_minute_of_wsl(tmp_path: Path) -> None:
    made = with_libraries(tmp_path, cuda=f"log {tmp_path}/calls\n")
    (tmp_path / "proc/uptime").write_text("59.00 1.00\n")
    expect(libcuda.look(made), UNKNOWN, "not asked in the first 60 s of WSL")
    assert not (tmp_path / "calls").exists()
    (tmp_path / "proc/uptime").write_text("61.00 1.00\n")
    expect(libcuda.look(made), OK, "CUDA 12")
    assert (tmp_path / "calls").exists()


def running(tree: Path, document: dict[str, Any], files: dict[str, str] = WSL2) -> Machine:
    return machine(tree, files, root=report(), agent=document)


def test_running_agent_comes_before_the_driver(tmp_path: Path) -> None:
    inventory = Inventory((DEVICE,), "12.8", f"{tmp_path}/usr/lib/wsl/lib/libcuda.so.1")
    made = running(tmp_path, {"cuda": asdict(inventory)})
    expect(libcuda.look(made), OK, "CUDA 12.8, RTX")  # though the tree holds no library at all
    failed = Inventory(failure=Failure(Reason.NO_DEVICE, "no GPU offered", advice="do x"))
    assert libcuda.look(running(tmp_path, {"cuda": asdict(failed)})).fix == "do x"
    expect(libcuda.look(running(tmp_path, {})), UNKNOWN, "not looked yet")


def test_a_library_that_gpud_itself_took_from_elsewhere_is_a_problem(tmp_path: Path) -> None:
    stray = build_libcuda(tmp_path / STRAY_LIBRARIES)
    document = {"cuda": asdict(Inventory((DEVICE,), "12.8", str(stray)))}
    expect(libcuda.look(running(tmp_path, document)), PROBLEM, "which is not WSL's")
    configured = {"cuda": CudaSettings(library=str(stray))}
    made = machine(tmp_path, WSL2, root=report(), agent=document, settings=configured)
    expect(libcuda.look(made), OK, "as configured")


def test_without_a_driver_only_wsl_has_a_problem(tmp_path: Path) -> None:
    for check in (driver, libcuda):
        assert check.look(machine(tmp_path / "linux", LINUX)).verdict is OK
        assert check.look(machine(tmp_path / "wsl", WSL2)).verdict is PROBLEM


@pytest.mark.parametrize("files", [LINUX, WSL2, GPU_OFF], ids=["linux", "wsl", "off"])
def test_a_configured_library_that_is_not_there_is_a_problem_everywhere(
    tmp_path: Path, files: dict[str, str]
) -> None:
    wrong = CudaSettings(library="/nonexistent/lib.so.1")
    made = machine(tmp_path, files, settings={"cuda": wrong, "nvml": wrong})
    for name, check in (("cuda", libcuda), ("nvml", telemetry)):
        finding = check.look(made)
        expect(finding, PROBLEM, "/nonexistent/lib.so.1")
        assert finding.fix == f"correct [{name}] library in gpud.toml, or leave it out"


# machines without a GPU

MISSING = {"reason": "library_missing", "detail": "not there", "fix": "install it"}
NO_DRIVER = "Windows offers a GPU, and has no NVIDIA driver"
CHECKS = [driver, libcuda, telemetry]


def without_driver(level: int, reason: str) -> dict[str, Any]:
    """The agent's document where neither NVML nor CUDA has a library."""
    health = {"level": level, "reason": reason, "detail": NO_DRIVER, "fix": "install it"}
    failure = {"reason": "library_missing", "detail": "not there", "advice": "install it"}
    return {
        "health": {"cuda": health, "nvml": health},
        "cuda": {"devices": [], "failure": failure},
        "telemetry": {
            "level": "dxg",
            "sources": {"nvml": MISSING},
            "readings": [fact("exposed", "yes")],
        },
    }


@pytest.mark.parametrize("check", CHECKS)
def test_no_problem_where_the_agent_expects_no_gpu(check: Check, tmp_path: Path) -> None:
    expect(check.look(running(tmp_path, without_driver(0, "no_gpu"))), OK, NO_DRIVER)


@pytest.mark.parametrize("check", CHECKS)
def test_missing_driver_is_a_problem_where_the_agent_expects_it(
    check: Check, tmp_path: Path
) -> None:
    made = running(tmp_path, without_driver(2, "library_missing"))
    assert check.look(made).verdict is PROBLEM


@pytest.mark.parametrize("check", CHECKS)
def test_a_gpu_that_is_switched_off_is_no_problem_without_an_agent_too(
    check: Check, tmp_path: Path
) -> None:
    evidence = "[gpu] enabled=false in wsl.conf switches the GPU off"
    expect(check.look(machine(tmp_path, GPU_OFF)), OK, evidence)
    linux = LINUX | {"/etc/wsl.conf": GPU_OFF["/etc/wsl.conf"]}
    assert evidence not in check.look(machine(tmp_path / "linux", linux)).evidence


# telemetry

SILENT = {"reason": "driver_not_loaded", "detail": "NVML: Driver Not Loaded (9)", "fix": "do x"}


def fact(field: str, value: str | None) -> dict[str, Any]:
    return {"gpu": None, "field": field, "source": "nvml", "value": value, "absent": None}


def reading(field: str, value: float | None, absent: str | None = None) -> dict[str, Any]:
    return fact(field, None) | {"gpu": 0, "value": value, "absent": absent}


WARM = reading("temperature_celsius", 50.0)


def agent(
    *readings: dict[str, Any], level: str = "nvml", nvml: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """The running agent's document about telemetry."""
    sources = {"nvml": nvml or {"reason": None}}
    return {"telemetry": {"level": level, "sources": sources, "readings": list(readings)}} | more


def make_dxg(tree: Path) -> None:
    (tree / "dev").mkdir(parents=True, exist_ok=True)
    os.mknod(tree / "dev/dxg", stat.S_IFCHR | 0o666, os.makedev(1, 3))


NVIDIA = LINUX | {"/dev/nvidiactl": ""}
TELEMETRY = [
    (WSL2, agent(WARM, reading("fan_ratio", None, "unsupported")), OK, "not supported here: fan"),
    (WSL2, agent(reading("power_watts", None, "failed")), ADVICE, "failed: power"),
    (WSL2, agent(WARM, level="nvidia_smi_exe", nvml=SILENT), ADVICE, "come from nvidia-smi.exe"),
    (WSL2, agent(WARM, level="nvidia_smi", nvml=SILENT), ADVICE, "come from nvidia-smi;"),
    (WSL2, agent(WARM, level="cuda", nvml=SILENT), ADVICE, "come from CUDA only"),
    (WSL2, agent(WARM, level="cuda", nvml=SILENT), ADVICE, "replaced or its adapter changed"),
    (LINUX, agent(fact("exposed", "yes"), level="nothing", nvml=SILENT), PROBLEM, "nothing tells"),
    (LINUX, agent(fact("exposed", "no"), level="nothing", nvml=SILENT), OK, "none expected"),
    (LINUX, agent(fact("exposed", "disabled"), level="nothing", nvml=SILENT), OK, "none expected"),
    (LINUX, agent(level="nothing", nvml=MISSING), OK, "no GPU, and none expected"),
    (NVIDIA, agent(level="nothing", nvml=MISSING), PROBLEM, "library is not there"),
]


@pytest.mark.parametrize(("files", "document", "verdict", "evidence"), TELEMETRY)
def test_telemetry_is_judged_by_its_best_source(
    files: dict[str, str],
    document: dict[str, Any],
    verdict: Verdict,
    evidence: str,
    tmp_path: Path,
) -> None:
    expect(telemetry.look(running(tmp_path, document, files)), verdict, evidence)


def test_silent_nvml_has_its_own_fix_or_that_of_the_platform(tmp_path: Path) -> None:
    assert telemetry.look(running(tmp_path, agent(level="cuda", nvml=SILENT))).fix == "do x"
    document = agent(level="cuda", nvml={"reason": "crashed", "detail": "it ended (-11)"})
    for name, files, platform in (("w", WSL2, Platform.WSL2), ("l", LINUX, Platform.LINUX)):
        finding = telemetry.look(running(tmp_path / name, document, files))
        expect(finding, ADVICE, "the driver's library ended the process", "(-11)")
        assert finding.fix == words(Situation.TELEMETRY_SILENT, platform)


@needs_root
@pytest.mark.parametrize("level", ["nothing", "dxg"])
def test_silence_where_wsl_offers_a_gpu_is_a_problem(tmp_path: Path, level: str) -> None:
    make_dxg(tmp_path)
    document = agent(level=level, nvml=SILENT)
    expect(telemetry.look(running(tmp_path, document)), PROBLEM, "nothing tells how the GPU is")
    expect(telemetry.look(running(tmp_path, document, GPU_OFF)), OK, "none expected")


@pytest.mark.parametrize("check", [driver, telemetry])
def test_an_agent_that_has_no_telemetry_yet_is_waited_for(check: Check, tmp_path: Path) -> None:
    expect(check.look(running(tmp_path, {})), UNKNOWN, "not looked yet")
    never = {"telemetry": TelemetrySettings(disabled=LEVELS[1:])}
    made = machine(tmp_path, WSL2, root=report(), settings=never)
    expect(check.look(made), OK, "every source is switched off")


@needs_root
def test_nvml_answers_without_gpud_and_no_program_is_started(tmp_path: Path) -> None:
    made = with_libraries(tmp_path)
    started = tmp_path / "started"
    for name in ("usr/bin/nvidia-smi", "usr/lib/wsl/lib/nvidia-smi"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {started}\n")
        program.chmod(0o755)
    expect(telemetry.look(made), OK, "from NVML")
    expect(driver.look(made), OK, "driver ", "WSL kernel 5.15.167.4")
    library = tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    rewrite_script(library, "fail nvmlInitWithFlags 9\n")
    expect(telemetry.look(made), OK, "none expected")  # there is no /dev/dxg
    make_dxg(tmp_path)
    expect(telemetry.look(made), ADVICE, "no gpud runs that could ask elsewhere", "(9)")
    assert not started.exists()


@pytest.mark.parametrize(
    ("vendor", "container", "verdict"),
    [("0x10de", {}, ADVICE), ("0x8086", {}, OK), ("0x10de", {"/.dockerenv": ""}, OK)],
)
def test_a_card_that_no_driver_has_taken_is_expected_to_answer(
    vendor: str, container: dict[str, str], verdict: Verdict, tmp_path: Path
) -> None:
    card = "/sys/bus/pci/devices/0000:01:00.0"
    files = LINUX | {f"{card}/vendor": f"{vendor}\n", f"{card}/class": "0x030000\n"} | container
    assert telemetry.look(machine(tmp_path, files)).verdict is verdict


# driver

MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC\n"
LOADED = LINUX | {"/proc/driver/nvidia/version": MODULE}
MISMATCH = {"reason": "driver_mismatch", "detail": "NVML: mismatch (18)", "fix": "reboot"}
HUNG = {"reason": "hung", "detail": "no answer", "fix": "x"}
NEW, SIDE = fact("driver_version", "595.71"), fact("nvml_version", "595.45.03")
CUDA_13 = fact("cuda_version", "13.1")
NO_GPU = {"nvml": {"level": 0, "reason": "no_gpu", "detail": "there is no NVIDIA GPU here"}}
WORKS = reading("memory_total_bytes", 8e9)
OLD_KERNEL = WSL2 | {"/proc/sys/kernel/osrelease": "4.19.128-microsoft-standard\n"}
DRIVER = [
    (WSL2, agent(NEW, SIDE, CUDA_13), OK, "driver 595.71 (WSL side 595.45.03), CUDA 13.1"),
    (LINUX, agent(NEW, SIDE, CUDA_13), OK, "driver 595.71, CUDA 13.1"),
    (WSL2, agent(fact("driver_version", "472.12")), PROBLEM, "CUDA in WSL began with 495"),
    (LINUX, agent(fact("driver_version", "472.12")), OK, "472.12"),
    (OLD_KERNEL, agent(NEW), ADVICE, "is old"),
    (LOADED, agent(fact("driver_version", "550.54.15")), OK, "550.54.15"),
    (LOADED, agent(NEW, SIDE), PROBLEM, "module is 550.54.15 and its libraries are 595.45.03"),
    (WSL2, agent(level="nothing", nvml=HUNG), PROBLEM, "no answer"),
    (WSL2, agent(level="nothing", nvml=MISMATCH), PROBLEM, "mismatch (18)"),
    (LINUX, agent(level="nothing", nvml=HUNG), UNKNOWN, "no answer"),
    (LINUX, agent(level="nothing", nvml=MISMATCH), PROBLEM, "mismatch (18)"),
    (WSL2, agent(WORKS, level="cuda", nvml=SILENT), UNKNOWN, "the line on telemetry says why"),
    (WSL2, agent(WORKS, level="cuda", nvml=MISMATCH), PROBLEM, "mismatch (18)"),
    (LINUX, agent(level="nothing", nvml=MISSING, health=NO_GPU), OK, "no NVIDIA GPU here"),
]


@pytest.mark.parametrize(("files", "document", "verdict", "evidence"), DRIVER)
def test_the_driver_must_fit_wsl_its_kernel_and_its_libraries(
    files: dict[str, str],
    document: dict[str, Any],
    verdict: Verdict,
    evidence: str,
    tmp_path: Path,
) -> None:
    expect(driver.look(running(tmp_path, document, files)), verdict, evidence)


def test_several_driver_folders_are_named_with_that_in_use(tmp_path: Path) -> None:
    used, other = "nvltwi.inf_amd64_08cf6d985207979a", "nvfrwi.inf_amd64_63d60f682af8cba2"
    document = agent(fact("driver_version", "572.16"), fact("driver_folder", used))
    store = {f"/usr/lib/wsl/drivers/{name}/libcuda.so.1.1": "" for name in (used, other)}
    store |= {"/usr/lib/wsl/drivers/nvhda.inf_amd64_1/nvhda64v.sys": ""}
    finding = driver.look(running(tmp_path / "two", document, WSL2 | store))
    expect(finding, OK, "2 drivers lie in Windows' store", f"{used} is in use")
    assert "nvhda" not in finding.evidence
    store |= {"/usr/lib/wsl/drivers/NVoem.inf_amd64_2/nvidia-smi": ""}
    finding = driver.look(running(tmp_path / "three", document, WSL2 | store))
    expect(finding, OK, "3 drivers lie in Windows' store", "NVoem")  # as the agent counts them
