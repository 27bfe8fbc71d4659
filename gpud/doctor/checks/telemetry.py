"""Where the GPU's temperature, power and clocks come from, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.core import exposure, gpu_table, wsl
from gpud.core.advice import Situation
from gpud.core.sample import Absent
from gpud.core.telemetry import LEVELS, SEES_A_GPU
from gpud.doctor import telemetry
from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpud.doctor.machine import Machine
    from gpud.doctor.telemetry import Said

TITLE = "telemetry"
ORDER = 95
SUMMARY = "which source the GPU's temperature, power and clocks come from, and why not a better one"
DEVICE = "/dev/dxg"
BUS = "/sys/bus/pci/devices"
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


def look(machine: Machine) -> Finding:
    """Take the agent's word, else ask NVML alone: programs are for the agent to start, rarely."""
    said = telemetry.said(machine)
    if said is None:
        return telemetry.silent(machine)
    if said.trouble and machine.no_gpu is not None and not machine.settings.nvml.library:
        return ok(f"no GPU, and none expected: {machine.no_gpu}")
    return judged(said, expected=expected(machine, said), fix=machine.fix)


def expected(machine: Machine, said: Said) -> bool:
    """Say whether something points to a GPU here, by the agent's word or by its own rules."""
    if said.machine("exposed") is not None:
        return said.machine("exposed") == "yes"
    if machine.settings.nvml.library:
        return True
    if machine.wsl == "2":
        enabled = wsl.switch(machine.wsl_conf, "gpu", "enabled") is not False
        device = machine.kind(DEVICE) is Kind.CHARACTER
        return exposure.on_wsl(device=device, enabled=enabled) == "yes"
    cards = () if machine.container else _cards(machine)
    return exposure.on_linux(machine.names("/dev"), cards) == "yes"


def _cards(machine: Machine) -> Iterator[tuple[str, str]]:
    for name in machine.names(BUS):
        vendor, kind = (machine.text(f"{BUS}/{name}/{what}") for what in ("vendor", "class"))
        yield vendor or "", kind or ""


def judged(said: Said, *, expected: bool, fix: Callable[[Situation], str]) -> Finding:
    """Judge by the best source that answers and by NVML's reason. ``fix`` gives words for here."""
    source = gpu_table.SOURCES[said.level]
    seen = LEVELS.index(said.level) >= SEES_A_GPU
    if not said.trouble:
        if not seen:
            nothing = "nothing tells how the GPU is" if expected else "no GPU, and none expected"
            return problem(nothing, fix(Situation.NO_GPU)) if expected else ok(nothing)
        return _answering(said, source, fix)
    reason, words = str(said.trouble.get("reason")), str(said.trouble.get("detail") or "no word")
    told = f"{MEANING.get(reason, reason.replace('_', ' '))}: {words}"
    helps = str(said.trouble.get("fix") or fix(Situation.TELEMETRY_SILENT))
    if seen:
        return advice(f"NVML is silent, the values come from {source}; {told}", helps)
    if not expected:
        return ok("no GPU, and none expected")
    if said.asked:
        return advice(f"NVML is silent, and no gpud runs that could ask elsewhere; {told}", helps)
    return problem(f"nothing tells how the GPU is; {told}", helps)


def _answering(said: Said, source: str, fix: Callable[[Situation], str]) -> Finding:
    missing = gpu_table.missing({"telemetry": {"readings": said.readings}})
    words = f"from {source}" + (f"; {missing}" if missing else "")
    if any(reading.get("absent") == Absent.FAILED for reading in said.readings):
        return advice(words, fix(Situation.TELEMETRY_SILENT))
    return ok(words)
