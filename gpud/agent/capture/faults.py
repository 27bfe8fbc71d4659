"""Known faults that concern a recorded machine: as a running gpud has them, else by versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpud.agent.telemetry import windows
from gpud.core import advice
from gpud.core.errors import GpudError
from gpud.document.status import read
from gpud.known_issues.catalogue import catalogue
from gpud.known_issues.matching import MachineFacts, by_version

if TYPE_CHECKING:
    from gpud.agent.capture.record import Capture


def matched(capture: Capture) -> dict[str, str]:
    """Return the state of each entry: "seen", "applies" or "reported". Errors: none."""
    if isinstance(capture.status, dict):
        try:
            faults = read(capture.status).known_faults
        except GpudError:  # of another release
            faults = ()
        if faults:
            return {fault.id: fault.state for fault in faults}
    kernel = capture.files.get("/proc/sys/kernel/osrelease", "").strip()
    container = any(mark in capture.files for mark in advice.CONTAINER_MARKS)
    facts = MachineFacts(
        platform=str(advice.platform(kernel, container=container)),
        wsl_version=windows.wsl_version(_output(capture, "wslinfo") or _output(capture, "wsl.exe")),
        kernel=kernel or None,
        windows_build=windows.windows_build(_output(capture, "cmd.exe")),
        driver=driver(capture),
    )
    capabilities = dict.fromkeys(device.compute_capability for device in capture.cuda.devices)
    return {
        entry.id: str(relation)
        for capability in capabilities or [None]
        for entry, relation in by_version(
            catalogue(), replace(facts, compute_capability=capability)
        )
    }


def driver(capture: Capture) -> str | None:
    """Return the driver's version as NVML gave it."""
    values = (c.value for c in capture.nvml.calls if c.call == "nvmlSystemGetDriverVersion")
    return next((value for value in values if isinstance(value, str)), None)


def _output(capture: Capture, program: str) -> str:
    recorded = capture.programs.get(program)
    return "" if recorded is None else recorded.stdout
