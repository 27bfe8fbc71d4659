"""The driver's version, which Windows replaces overnight, and the kernel it must fit."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from gpud.core.advice import Situation
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.libraries import WSL_LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.doctor.machine import Machine

TITLE = "driver"
ORDER = 90
SUMMARY = "the NVIDIA driver's version through NVML, and the WSL kernel's"
OLDEST_DRIVER = 495
"""The first Windows driver with CUDA on WSL. Source: NVIDIA's guide to CUDA on WSL."""
OLDEST_KERNEL = (5, 10)
NAME = "libnvidia-ml.so.1"


def look(machine: Machine) -> Finding:
    """Take the agent's readings, else ask its telemetry helper once."""
    said = machine.agent if machine.root is not None else asked(machine)
    version, failure = read(said)
    wsl = machine.wsl == "2"
    return combined(
        driver(version, failure, wsl=wsl),
        kernel(machine.kernel or "") if wsl else None,
    )


def asked(machine: Machine) -> Mapping[str, Any]:
    """Put one question to the helper the agent would start; its input ends, and so does it."""
    places = [machine.settings.nvml.library]
    if not places[0]:
        places = [str(machine.at(f"{WSL_LIBRARIES}/{NAME}")), NAME]
    options = ["-I", "-m", "gpud.agent.nvml", f"--platform={machine.platform}"]
    command = [sys.executable, *options, *places]
    ended = machine.ask(command, stdin="{}\n")
    if ended.code is None:
        failure = {"reason": "hung", "detail": f"NVML: {ended.stderr}", "level": 2}
        failure["fix"] = machine.fix(Situation.HUNG)
        return {"health": {"nvml": failure}}
    try:
        answer = json.loads(ended.stdout)
        readings = answer.get("readings")
    except (ValueError, AttributeError, RecursionError):
        return {"health": {"nvml": {"level": 2, "detail": f"NVML ended with {ended.code}"}}}
    if readings is None:
        return {"health": {"nvml": {"level": 2, **answer}}}
    return {"telemetry": {"readings": readings}}


def read(document: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Give the driver's version, or the health of NVML that explains why there is none."""
    try:
        readings = document.get("telemetry", {}).get("readings", [])
        versions = [r.get("value") for r in readings if r.get("field") == "driver_version"]
        failure = document.get("health", {}).get("nvml") or {}
    except (AttributeError, TypeError):
        return None, {}
    version = next((value for value in versions if isinstance(value, str)), None)
    return version, failure if isinstance(failure, dict) else {}


def driver(version: str | None, failure: Mapping[str, Any], *, wsl: bool) -> Finding:
    """Judge the version, or why there is none: only where WSL offers a GPU is that a problem."""
    if version is None:
        if failure.get("reason") == "library_missing" and not wsl:
            return ok("no NVIDIA driver on this machine")
        detail = str(failure.get("detail") or "NVML does not give the driver's version")
        fix = failure.get("fix")
        return problem(detail, str(fix)) if wsl and fix else unknown(detail, fix and str(fix))
    major = re.match(r"[0-9]{1,6}", version)
    if wsl and major is not None and int(major[0]) < OLDEST_DRIVER:
        return problem(
            f"driver {version}: CUDA in WSL began with {OLDEST_DRIVER}",
            "update the NVIDIA driver in Windows, then wsl --shutdown",
        )
    return ok(f"driver {version}")


def kernel(release: str) -> Finding:
    """Judge the WSL kernel: ``wsl --update`` brings a new one."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST_KERNEL:
        return advice(f"WSL kernel {release} is old", "from Windows: wsl --update")
    return ok(f"WSL kernel {release}")
