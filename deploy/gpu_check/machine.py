"""What the figures were taken on: the GPU and its clocks, the driver, the compilers, the commit."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .processes import Refused, finished, wsl

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"
TOOL_S = 30.0
FIELDS = (
    "name",
    "driver_version",
    "pstate",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "ecc.mode.current",
    "mig.mode.current",
    "compute_mode",
    "persistence_mode",
)


def facts(device: dict[str, Any], cuda: str | None) -> dict[str, Any]:
    """Describe the machine and the checkout; what cannot be told is absent.

    ``device`` is the GPU as gpud's child lists it, ``cuda`` the driver's own version of CUDA.
    """
    found: dict[str, Any] = {
        "gpu": device,
        "cuda_version": cuda,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "wsl": wsl(),
        "cc": _first_line("cc", "--version"),
        "commit": _first_line("git", "-C", str(ROOT), "rev-parse", "HEAD"),
    }
    if found["commit"]:
        changed = _said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
        found["uncommitted_changes"] = bool(changed)
    return {name: value for name, value in found.items() if value is not None}


def condition(uuid: str) -> dict[str, str]:
    """Ask nvidia-smi for the state of one GPU; empty where it does not answer."""
    smi = nvidia_smi()
    if smi is None:
        return {}
    said = _said(smi, f"--id={uuid}", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader")
    values = said.strip().splitlines()[0].split(", ") if said and said.strip() else []
    if len(values) != len(FIELDS):
        return {}
    return {name: value for name, value in zip(FIELDS, values, strict=True) if value[:1] != "["}


def other_users(uuid: str) -> str | None:
    """Say who else uses the GPU, or that nobody can tell; None where it is free."""
    smi = nvidia_smi()
    query = (f"--id={uuid}", "--query-compute-apps=pid", "--format=csv,noheader")
    listed = _said(smi, *query) if smi else None
    if listed is None:
        return "nvidia-smi does not say whether another process uses the GPU"
    pids = [line.strip() for line in listed.splitlines() if line.strip()]
    if pids:
        return f"another process uses the GPU: {', '.join(pids)}"
    usage = condition(uuid).get("utilization.gpu", "").removesuffix("%").strip()
    return f"the GPU is in use, {usage} % of the time" if usage not in {"", "0"} else None


def nvidia_smi() -> str | None:
    """Find the program: on PATH, or where WSL has it."""
    return shutil.which("nvidia-smi") or (WSL_SMI if Path(WSL_SMI).exists() else None)


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None)


def _first_line(*command: str) -> str | None:
    said = _said(*command)
    return said.splitlines()[0].strip() if said and said.strip() else None


def _said(*command: str) -> str | None:
    """Give what a tool prints; None where it is absent, refuses or does not end.

    Errors: ``Hung``: nvidia-smi waits for the driver as well.
    """
    try:
        ended = finished(command, "", limit_s=TOOL_S)
    except Refused:
        return None
    return None if ended.returncode else ended.stdout


def program(arguments: Sequence[str]) -> list[str]:
    """Give the command as it was given."""
    return ["deploy/gpu-check", *arguments]
