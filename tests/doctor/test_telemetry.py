"""The driver and where numbers come from, judged from what an agent or NVML itself says."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from gpud.core.advice import Platform, Situation, words
from gpud.core.sections import Telemetry
from gpud.core.settings import Settings
from gpud.core.telemetry import LEVELS
from gpud.doctor.checks import driver, telemetry
from gpud.doctor.finding import Verdict
from tests.doctor.test_libraries import wsl2
from tests.doctor.trees import LINUX, WSL2, machine, report
from tests.standins.build import rewrite_script

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.doctor.finding import Finding
    from gpud.doctor.machine import Machine

OK, UNKNOWN, ADVICE, PROBLEM = Verdict.OK, Verdict.UNKNOWN, Verdict.ADVICE, Verdict.PROBLEM
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes a device")
SILENT = {"reason": "driver_not_loaded", "detail": "NVML: Driver Not Loaded (9)", "fix": "do x"}


def said(found: Finding, verdict: Verdict, *wanted: str) -> None:
    assert found.verdict is verdict, found
    for word in wanted:
        assert word in found.evidence


def fact(field: str, value: str | None, absent: str | None = None) -> dict[str, Any]:
    return {"gpu": None, "field": field, "source": "nvml", "value": value, "absent": absent}


def reading(field: str, value: float | None, absent: str | None = None) -> dict[str, Any]:
    return fact(field, None) | {"gpu": 0, "value": value, "absent": absent}


def agent(
    *readings: dict[str, Any], level: str = "nvml", nvml: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """What the running agent's document says of telemetry."""
    sources = {"nvml": {"reason": None, "detail": None, "fix": None} | (nvml or {})}
    return {"telemetry": {"level": level, "sources": sources, "readings": list(readings)}} | more


def running(tree: Path, files: dict[str, str], document: dict[str, Any]) -> Machine:
    return machine(tree, files, root=report(), agent=document)


def dxg(tree: Path) -> None:
    """Put the device there through which WSL offers a GPU."""
    (tree / "dev").mkdir(parents=True, exist_ok=True)
    os.mknod(tree / "dev/dxg", stat.S_IFCHR | 0o666, os.makedev(1, 3))


# telemetry


def test_nvml_that_answers_is_well_and_says_what_it_withholds(tmp_path: Path) -> None:
    document = agent(
        reading("temperature_celsius", 50.0), reading("fan_ratio", None, "unsupported")
    )
    found = telemetry.look(running(tmp_path, WSL2, document))
    said(found, OK, "from NVML", "not supported here: fan")


def test_a_field_that_fails_is_advice(tmp_path: Path) -> None:
    document = agent(reading("power_watts", None, "failed"))
    said(telemetry.look(running(tmp_path, WSL2, document)), ADVICE, "failed: power")


@pytest.mark.parametrize(
    ("level", "source"),
    [("nvidia_smi_exe", "nvidia-smi.exe"), ("nvidia_smi", "nvidia-smi"), ("cuda", "CUDA only")],
)
def test_a_silent_nvml_with_somebody_beside_it_is_advice_with_what_it_means(
    tmp_path: Path, level: str, source: str
) -> None:
    document = agent(reading("temperature_celsius", 50.0), level=level, nvml=SILENT)
    found = telemetry.look(running(tmp_path, WSL2, document))
    said(found, ADVICE, f"values come from {source}", "the driver was replaced", "Not Loaded (9)")
    assert found.fix == "do x"


def test_a_reason_without_a_fix_gets_one_for_the_platform(tmp_path: Path) -> None:
    document = agent(level="cuda", nvml={"reason": "crashed", "detail": "it ended (-11)"})
    for name, files, platform in (("w", WSL2, Platform.WSL2), ("l", LINUX, Platform.LINUX)):
        found = telemetry.look(running(tmp_path / name, files, document))
        said(found, ADVICE, "the driver's library ended the process", "(-11)")
        assert found.fix == words(Situation.TELEMETRY_SILENT, platform)


@needs_root
@pytest.mark.parametrize("level", ["nothing", "dxg"])
def test_silence_where_wsl_offers_a_gpu_is_a_problem(tmp_path: Path, level: str) -> None:
    dxg(tmp_path)
    found = telemetry.look(running(tmp_path, WSL2, agent(level=level, nvml=SILENT)))
    said(found, PROBLEM, "nothing tells how the GPU is")
    off = WSL2 | {"/etc/wsl.conf": "[gpu]\nenabled = false\n"}
    found = telemetry.look(running(tmp_path, off, agent(level=level, nvml=SILENT)))
    said(found, OK, "none expected")


def test_the_agents_own_word_on_whether_there_is_a_gpu_goes_first(tmp_path: Path) -> None:
    for exposed, verdict in (("yes", PROBLEM), ("no", OK), ("disabled", OK)):
        document = agent(fact("exposed", exposed), level="nothing", nvml=SILENT)
        assert telemetry.look(running(tmp_path, LINUX, document)).verdict is verdict


def test_a_machine_without_a_gpu_is_well(tmp_path: Path) -> None:
    missing = {"reason": "library_missing", "detail": "no such file", "fix": "install it"}
    document = agent(level="nothing", nvml=missing)
    said(telemetry.look(running(tmp_path, LINUX, document)), OK, "no GPU, and none expected")
    nvidia = LINUX | {"/dev/nvidiactl": ""}
    said(telemetry.look(running(tmp_path, nvidia, document)), PROBLEM, "library is not there")


def test_without_nvml_among_the_sources_the_rest_is_judged(tmp_path: Path) -> None:
    document = agent(reading("temperature_celsius", 50.0), level="cuda")
    document["telemetry"]["sources"] = {"cuda": {"reason": None}}
    said(telemetry.look(running(tmp_path, LINUX, document)), OK, "from CUDA only")


def test_an_agent_that_has_not_looked_is_not_judged(tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [{}, {"telemetry": 3}, {"telemetry": {"sources": {}}}]
    for document in documents:
        for check in (telemetry, driver):
            found = check.look(running(tmp_path, WSL2, document))
            said(found, UNKNOWN, "not looked yet")


def test_one_that_never_will_look_is_not_waited_for(tmp_path: Path) -> None:
    off = Settings(
        home=str(tmp_path / "home"), sysroot=str(tmp_path), telemetry=Telemetry(disabled=LEVELS[1:])
    )
    made = machine(tmp_path, WSL2, settings=off, root=report(), agent={"telemetry": {}})
    for check in (telemetry, driver):
        said(check.look(made), OK, "every source is switched off")


@needs_root
def test_without_a_gpud_nvml_is_asked_and_no_program_is_started(tmp_path: Path) -> None:
    made = wsl2(tmp_path)
    started = tmp_path / "started"
    for name in ("usr/bin/nvidia-smi", "usr/lib/wsl/lib/nvidia-smi"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {started}\n")
        program.chmod(0o755)
    said(telemetry.look(made), OK, "from NVML")
    library = tmp_path / "usr/lib/wsl/lib/libnvidia-ml.so.1"
    rewrite_script(library, "fail nvmlInitWithFlags 9\nfail nvmlInit_v2 9\n")
    said(telemetry.look(made), OK, "none expected")  # there is no /dev/dxg
    dxg(tmp_path)
    said(telemetry.look(made), ADVICE, "no gpud runs that could ask elsewhere", "(9)")
    assert not started.exists()


def test_without_a_gpud_a_card_that_no_driver_has_taken_is_expected_to_tell(tmp_path: Path) -> None:
    card = "/sys/bus/pci/devices/0000:01:00.0"
    for vendor, container, verdict in (
        ("0x10de", False, ADVICE),
        ("0x8086", False, OK),
        ("0x10de", True, OK),  # the card of the host
    ):
        files = LINUX | {f"{card}/vendor": f"{vendor}\n", f"{card}/class": "0x030000\n"}
        files |= {"/.dockerenv": ""} if container else {}
        made = machine(tmp_path / f"{vendor}{container}", files)
        assert telemetry.look(made).verdict is verdict


# driver


def test_windows_driver_and_the_side_of_wsl_are_told_apart(tmp_path: Path) -> None:
    facts = [fact("driver_version", "595.71"), fact("nvml_version", "595.45.03")]
    document = agent(*facts, fact("cuda_version", "13.1"))
    found = driver.look(running(tmp_path / "w", WSL2, document))
    said(found, OK, "driver 595.71 (WSL side 595.45.03), CUDA 13.1", "WSL kernel 5.15")
    found = driver.look(running(tmp_path / "l", LINUX, document))
    assert found.evidence == "driver 595.71, CUDA 13.1"


def test_a_driver_from_before_cuda_on_wsl_is_a_problem_there_alone(tmp_path: Path) -> None:
    document = agent(fact("driver_version", "472.12"))
    old = driver.look(running(tmp_path / "w", WSL2, document))
    said(old, PROBLEM, "472.12: CUDA in WSL began with 495")
    assert driver.look(running(tmp_path / "l", LINUX, document)).verdict is OK


def test_nvml_and_libcuda_of_two_drivers_are_told(tmp_path: Path) -> None:
    document = agent(
        fact("driver_version", "572.16"),
        fact("cuda_version", "12.8"),
        cuda={"cuda_version": "12.4", "devices": []},
    )
    found = driver.look(running(tmp_path, WSL2, document))
    said(found, ADVICE, "libcuda is of CUDA 12.4 and NVML of CUDA 12.8")
    document["cuda"]["cuda_version"] = "12.8"
    assert driver.look(running(tmp_path, WSL2, document)).verdict is OK


def test_several_driver_folders_are_named_with_the_one_in_use(tmp_path: Path) -> None:
    one, other = "nvltwi.inf_amd64_08cf6d985207979a", "nvfrwi.inf_amd64_63d60f682af8cba2"
    facts = [fact("driver_version", "572.16"), fact("driver_folder", one)]
    store = {f"/usr/lib/wsl/drivers/{name}/libcuda.so.1.1": "" for name in (one, other)}
    store |= {"/usr/lib/wsl/drivers/nvhda.inf_amd64_1/nvhda64v.sys": ""}
    found = driver.look(running(tmp_path / "two", WSL2 | store, agent(*facts)))
    said(found, OK, "2 drivers lie in Windows' store", f"{one} is in use")
    assert "nvhda" not in found.evidence
    store |= {"/usr/lib/wsl/drivers/NVoem.inf_amd64_2/nvidia-smi": ""}
    found = driver.look(running(tmp_path / "three", WSL2 | store, agent(*facts)))
    said(found, OK, "3 drivers lie in Windows' store", "NVoem")  # as the agent counts them
    del store["/usr/lib/wsl/drivers/NVoem.inf_amd64_2/nvidia-smi"]
    del store[f"/usr/lib/wsl/drivers/{other}/libcuda.so.1.1"]
    found = driver.look(running(tmp_path / "one", WSL2 | store, agent(*facts)))
    assert "store" not in found.evidence


def test_a_kernel_module_older_than_its_libraries_needs_a_reboot_on_linux(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC\n"
    files = LINUX | {"/proc/driver/nvidia/version": text}
    document = agent(fact("driver_version", "550.54.15"), fact("nvml_version", "550.54.15"))
    assert driver.look(running(tmp_path, files, document)).verdict is OK
    document = agent(fact("driver_version", "550.54.15"), fact("nvml_version", "560.35.03"))
    found = driver.look(running(tmp_path, files, document))
    said(found, PROBLEM, "module is 550.54.15 and its libraries are 560.35.03")
    assert (found.fix or "").endswith("reboot")


def test_without_a_version_wsl_has_a_problem_and_linux_only_where_it_is_sure(
    tmp_path: Path,
) -> None:
    mismatch = {"reason": "driver_mismatch", "detail": "NVML: mismatch (18)", "fix": "reboot"}
    hung = {"reason": "hung", "detail": "no answer", "fix": "x"}
    for files, nvml, verdict in (
        (WSL2, hung, PROBLEM),
        (WSL2, mismatch, PROBLEM),
        (LINUX, hung, UNKNOWN),
        (LINUX, mismatch, PROBLEM),
    ):
        document = agent(level="nothing", nvml=nvml)
        said(driver.look(running(tmp_path, files, document)), verdict, str(nvml["detail"]))


def test_a_driver_that_works_and_is_not_named_is_no_problem_twice(tmp_path: Path) -> None:
    document = agent(reading("memory_total_bytes", 8e9), level="cuda", nvml=SILENT)
    found = driver.look(running(tmp_path, WSL2, document))
    said(found, UNKNOWN, "the line on telemetry says why")
    document["telemetry"]["sources"]["nvml"]["reason"] = "driver_mismatch"
    assert driver.look(running(tmp_path, WSL2, document)).verdict is PROBLEM


def test_a_machine_that_never_had_a_gpu_has_no_driver_to_miss(tmp_path: Path) -> None:
    missing = {"reason": "library_missing", "detail": "no such file", "fix": "install it"}
    health = {"nvml": {"level": 0, "reason": "no_gpu", "detail": "there is no NVIDIA GPU here"}}
    document = agent(level="nothing", nvml=missing, health=health)
    said(driver.look(running(tmp_path, WSL2, document)), OK, "there is no NVIDIA GPU here")
