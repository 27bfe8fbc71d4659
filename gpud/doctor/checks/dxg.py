"""The device through which WSL offers the GPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpud.core import wsl
from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Kind

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "/dev/dxg"
ORDER = 60
SUMMARY = "the GPU's device is there and may be opened; on plain Linux NVIDIA's own"
DEVICE = "/dev/dxg"


def look(machine: Machine) -> Finding:
    """Look at the device; it is not opened, for that would reach the driver."""
    if machine.wsl != "2":
        own = [name for name in machine.names("/dev") if name.startswith("nvidia")]
        where = "WSL 1 offers no GPU" if machine.wsl == "1" else "not WSL 2"
        return ok(f"{where}; NVIDIA's own devices: {', '.join(own[:6]) or 'none'}")
    kind = machine.kind(DEVICE)
    return judged(
        kind,
        usable=os.access(machine.at(DEVICE), os.R_OK | os.W_OK),
        enabled=wsl.switch(machine.wsl_conf, "gpu", "enabled") is not False,
    )


def judged(kind: Kind, *, usable: bool, enabled: bool) -> Finding:
    """Judge the device; switched off on purpose is no problem, and leaves the device there."""
    if not enabled:
        there = "none" if kind is Kind.ABSENT else "there"
        return advice(
            f"{there}: [gpu] enabled=false in wsl.conf switches the GPU off",
            "remove that line, then from Windows: wsl --shutdown",
        )
    if kind is Kind.ABSENT:
        return problem(
            "none: Windows offers no GPU to this distribution",
            "install the NVIDIA driver in Windows, wsl --update, then wsl --shutdown; "
            "gpuSupport=false in .wslconfig switches it off too",
        )
    if kind is not Kind.CHARACTER:
        return problem(f"{DEVICE} is {kind}, not a device", f"remove {DEVICE}; wsl --shutdown")
    if not usable:
        return problem(f"{DEVICE} may not be opened by you", f"sudo chmod 0666 {DEVICE}")
    return ok("there")
