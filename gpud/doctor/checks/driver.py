"""Checks of the driver: its device, its version, which Windows replaces overnight, its telemetry.

The readings are the running agent's, else those of the NVML helper that an agent would start.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import msgspec

from gpud import gpu_lock
from gpud.core import exposure
from gpud.core.advice import Platform, Situation
from gpud.core.exposure import MARKS, PREFIX, STORE
from gpud.core.health import Level
from gpud.core.sample import Absent
from gpud.core.settings import NVML_LOCK
from gpud.core.telemetry import LEVELS, SEES_A_GPU
from gpud.doctor.finding import (
    Finding,
    advice,
    check,
    combined,
    no_answer,
    not_looked,
    ok,
    problem,
    unknown,
)
from gpud.doctor.machine import Machine
from gpud.document.status import Status
from gpud.document.telemetry import ReadingReport, SourceReport, TelemetryReport
from gpud.show import gpus

DEVICE = "/dev/dxg"
BUS = "/sys/bus/pci/devices"
MODULE = "/proc/driver/nvidia/version"
NVML = "nvml"
LIBRARIES = ("/usr/lib/wsl/lib/libnvidia-ml.so.1", "libnvidia-ml.so.1")
OLDEST_DRIVER = 495
"""The first Windows driver with CUDA on WSL. Source: NVIDIA's guide to CUDA on WSL."""
OLDEST_KERNEL = (5, 10)
MEANING = {
    "blocked_by_the_operating_system": "the system keeps programs from the GPU",
    "crashed": "the driver's library ended the process that asked it",
    "driver_mismatch": "the library and the driver are of two releases",
    "driver_not_loaded": "the driver was replaced or its adapter changed",
    "gpu_is_lost": "the GPU fell off its bus",
    "hung": "the driver does not answer",
    "library_missing": "the driver's library is not there",
    "symbol_missing": "the driver is too old",
}
"""NVML's reasons in words; the others speak for themselves."""
_LOADED = re.compile(r"NVRM version:.*?\s(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\s")


@check(60, "/dev/dxg")
def dxg(machine: Machine) -> Finding:
    """The GPU's device is there and may be opened; on plain Linux NVIDIA's own."""
    if machine.wsl != "2":
        own = [name for name in machine.names("/dev") if name.startswith("nvidia")]
        where = "WSL 1 offers no GPU" if machine.wsl == "1" else "not WSL 2"
        return ok(f"{where}; NVIDIA's own devices: {', '.join(own[:6]) or 'none'}")
    facts = machine.stat(DEVICE)
    if machine.wsl_switch("gpu", "enabled") is False:
        return advice(
            f"{'there' if facts else 'none'}: [gpu] enabled=false in wsl.conf switches the GPU off",
            "remove that line, then from Windows: wsl --shutdown",
        )
    if facts is None:
        return problem(
            "none: Windows offers no GPU to this distribution",
            "install the NVIDIA driver in Windows, wsl --update, then wsl --shutdown; "
            "gpuSupport=false in .wslconfig switches it off too",
        )
    if not stat.S_ISCHR(facts.st_mode):
        return problem(f"{DEVICE} is not a device", f"remove {DEVICE}; wsl --shutdown")
    if not os.access(machine.at(DEVICE), os.R_OK | os.W_OK):  # opening it would reach the driver
        return problem(f"{DEVICE} may not be opened by you", f"sudo chmod 0666 {DEVICE}")
    return ok("there")


@check(90, "driver", may_block=True)  # the driver, and Windows' driver store
def driver(machine: Machine) -> Finding:
    """The NVIDIA driver's version, its folders in Windows' store, and the kernel it must fit."""
    status = _status(machine)
    if isinstance(status, Finding):
        return status
    version = _version(machine, status)
    if machine.wsl == "2":
        folders = _folders(machine, _fact(status, "driver_folder"))
        return combined(version, folders, _kernel(machine.kernel))
    return combined(version, _module(machine, status))


def _version(machine: Machine, status: Status) -> Finding:
    version = _fact(status, "driver_version")
    if version is None:
        if machine.no_gpu is not None and not machine.settings.nvml.library:
            return ok(machine.no_gpu)
        return _no_version(machine, status)
    major = re.match(r"[0-9]{1,6}", version)
    if machine.wsl == "2" and major is not None and int(major[0]) < OLDEST_DRIVER:
        evidence = f"driver {version}: CUDA in WSL began with {OLDEST_DRIVER}"
        return problem(evidence, machine.fix(Situation.TOO_OLD))
    library, cuda = _fact(status, "nvml_version"), _fact(status, "cuda_version")
    side = library if machine.wsl == "2" and library != version else None
    evidence = f"driver {version}{f' (WSL side {side})' if side else ''}"
    return ok(f"{evidence}{f', CUDA {cuda}' if cuda else ''}")


def _no_version(machine: Machine, status: Status) -> Finding:
    """Say why there is no version; it is a problem where WSL offers a GPU, or if it is certain."""
    health, nvml, wsl = machine.health(NVML), _nvml(status), machine.wsl == "2"
    mismatch = nvml.reason == "driver_mismatch"
    if health is not None and health.level == Level.OK and health.detail:
        return ok(health.detail)
    if nvml.reason == "library_missing" and not wsl:
        return ok("no NVIDIA driver on this machine")
    if _gpu_visible(status) and not mismatch:
        return unknown("its version is not known: the line on telemetry says why")
    detail = nvml.detail or "nobody gives the driver's version"
    if nvml.fix and (wsl or mismatch):
        return problem(detail, nvml.fix)
    return unknown(detail, nvml.fix)


def _folders(machine: Machine, used: str | None) -> Finding | None:
    """Name the driver's folders in Windows' store if there are several: one is in use."""
    folders = [
        name
        for name in machine.names(STORE)
        if name.lower().startswith(PREFIX)
        and any(machine.exists(f"{STORE}/{name}/{mark}") for mark in MARKS)
    ]
    if len(folders) < 2:  # noqa: PLR2004  # several
        return None
    which = f"{used} is in use" if used else "which is in use is not known"
    return ok(f"{len(folders)} drivers lie in Windows' store ({', '.join(folders[:4])}), {which}")


def _module(machine: Machine, status: Status) -> Finding | None:
    """Compare the kernel's module with its libraries, on plain Linux."""
    module = _LOADED.search(machine.text(MODULE) or "")
    library = _fact(status, "nvml_version") or _fact(status, "driver_version")
    if module is None or library in {None, module[1]} or machine.platform is Platform.CONTAINER:
        return None
    evidence = f"the kernel's module is {module[1]} and its libraries are {library}"
    return problem(evidence, machine.fix(Situation.MISMATCH))


def _kernel(release: str) -> Finding:
    version = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if version is not None and (int(version[1]), int(version[2])) < OLDEST_KERNEL:
        return advice(f"WSL kernel {release} is old", "from Windows: wsl --update")
    return ok(f"WSL kernel {release}")


@check(95, "telemetry", may_block=True)  # the driver
def telemetry(machine: Machine) -> Finding:
    """Source of the GPU's temperature, power and clocks, and why it is not a better one."""
    status = _status(machine)
    if isinstance(status, Finding):
        return status
    if _nvml(status).reason is not None:
        if machine.no_gpu is not None and not machine.settings.nvml.library:
            return ok(f"no GPU, and none expected: {machine.no_gpu}")
        return _nvml_silent(machine, status)
    return _nvml_answers(machine, status)


def _nvml_answers(machine: Machine, status: Status) -> Finding:
    if not _gpu_visible(status):
        if _gpu_expected(machine, status):
            return problem("nothing tells how the GPU is", machine.fix(Situation.NO_GPU))
        return ok("no GPU, and none expected")
    missing = gpus.missing(status)
    source = gpus.SOURCES[status.telemetry.level]
    evidence = f"from {source}{f'; {missing}' if missing else ''}"
    if any(reading.absent == Absent.FAILED for reading in status.telemetry.readings):
        return advice(evidence, machine.fix(Situation.TELEMETRY_SILENT))
    return ok(evidence)


def _nvml_silent(machine: Machine, status: Status) -> Finding:
    nvml, level = _nvml(status), status.telemetry.level
    reason = str(nvml.reason)
    meaning = MEANING.get(reason, reason.replace("_", " "))
    why = f"{meaning}: {nvml.detail or 'no word'}"
    fix = nvml.fix or machine.fix(Situation.TELEMETRY_SILENT)
    if _gpu_visible(status):
        source = gpus.SOURCES[level]
        return advice(f"NVML is silent, the values come from {source}; {why}", fix)
    if not _gpu_expected(machine, status):
        return ok("no GPU, and none expected")
    if machine.root is None and not machine.settings.nvml.library:
        return advice(f"NVML is silent, and no gpud runs that could ask elsewhere; {why}", fix)
    return problem(f"nothing tells how the GPU is; {why}", fix)


def _gpu_expected(machine: Machine, status: Status) -> bool:
    """Say whether something points to a GPU here, by the agent's reading or by its own rules."""
    if exposed := _fact(status, "exposed"):
        return exposed == "yes"
    if machine.settings.nvml.library:
        return True
    if machine.wsl == "2":
        facts = machine.stat(DEVICE)
        device = facts is not None and stat.S_ISCHR(facts.st_mode)
        enabled = machine.wsl_switch("gpu", "enabled") is not False
        return exposure.on_wsl(device=device, enabled=enabled) == "yes"
    cards = () if machine.container else machine.names(BUS)
    kinds = (
        (machine.text(f"{BUS}/{card}/vendor") or "", machine.text(f"{BUS}/{card}/class") or "")
        for card in cards
    )
    return exposure.on_linux(machine.names("/dev"), kinds) == "yes"


class _HelperAnswer(SourceReport, frozen=True):
    readings: tuple[ReadingReport, ...] | None = None


def _gpu_visible(status: Status) -> bool:
    """Return whether the best source sees a GPU."""
    level = status.telemetry.level
    return level in LEVELS and LEVELS.index(level) >= SEES_A_GPU


def _nvml(status: Status) -> SourceReport:
    return status.telemetry.sources.get(NVML, SourceReport())


def _fact(status: Status, name: str) -> str | None:
    """Return a fact of the machine, such as ``driver_version``; None if it is not known."""
    values = (each.value for each in status.telemetry.readings if each.field == name)
    return next((value for value in values if isinstance(value, str)), None)


def _status(machine: Machine) -> Status | Finding:
    """Return the agent's status, or one with the helper's answer if no gpud runs. Errors: none.

    A finding instead: the agent has no telemetry yet, or never will.
    """
    if machine.root is None:
        return _from_helper(machine)
    if machine.agent.telemetry.sources:
        return machine.agent
    if set(LEVELS[1:]) <= set(machine.settings.telemetry.disabled):
        return ok("every source is switched off: [telemetry] disabled")
    return not_looked(machine)


def _from_helper(machine: Machine) -> Status | Finding:
    """Send one request to the NVML helper, which ends with its input.

    None is started while an earlier one stays in the driver.
    """
    if left := gpu_lock.holder_elsewhere(Path(machine.settings.run_dir, "agent", NVML_LOCK)):
        hangs = SourceReport(
            reason="stuck",
            detail=f"not asked: {left} stays in a call of NVML",
            fix=machine.fix(Situation.HUNG),
        )
        return Status(telemetry=TelemetryReport(LEVELS[0], None, {NVML: hangs}))
    configured = machine.settings.nvml.library
    places = [configured] if configured else [str(machine.at(LIBRARIES[0])), LIBRARIES[1]]
    options = ["-I", "-m", "gpud.agent.telemetry.nvml", f"--platform={machine.platform}"]
    if leave := machine.settings.cuda.leaves_hung(machine.kernel):
        options.append("--budget-s=0")  # without an alarm of its own
    ended = machine.run([sys.executable, *options, *places], stdin="{}\n", kill=not leave)
    try:
        answer = msgspec.json.decode(ended.stdout, type=_HelperAnswer)
    except (msgspec.DecodeError, RecursionError):
        answer = _HelperAnswer(reason="crashed", detail=f"NVML ended with {ended.code}")
    if ended.code is None:
        return no_answer(machine.command_limit_s)
    level = LEVELS[0] if answer.readings is None else NVML
    return Status(telemetry=TelemetryReport(level, None, {NVML: answer}, answer.readings or ()))
