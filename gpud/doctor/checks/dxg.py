"""Check of the device through which WSL offers the GPU."""

from __future__ import annotations

import os
import stat

from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Machine

TITLE = "/dev/dxg"
ORDER = 60
SUMMARY = "the GPU's device is there and may be opened; on plain Linux NVIDIA's own"
DEVICE = "/dev/dxg"


def look(machine: Machine) -> Finding:
    """Stat the device; it is not opened, for that would reach the driver."""
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
    if not os.access(machine.at(DEVICE), os.R_OK | os.W_OK):
        return problem(f"{DEVICE} may not be opened by you", f"sudo chmod 0666 {DEVICE}")
    return ok("there")
