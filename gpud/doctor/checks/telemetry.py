"""Check of telemetry: which source gives the GPU's temperature, power and clocks, and why."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import msgspec

from gpud.core import exposure
from gpud.core.advice import Situation
from gpud.core.sample import Absent
from gpud.doctor import telemetry
from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Machine
from gpud.doctor.telemetry import MachineTelemetry
from gpud.show import gpu_table

TITLE = "telemetry"
ORDER = 95
SUMMARY = "which source the GPU's temperature, power and clocks come from, and why not a better one"
MAY_BLOCK = True  # the driver
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
    """Take the agent's telemetry, else NVML's alone: programs are for the agent to start."""
    readings = telemetry.read(machine)
    if isinstance(readings, Finding):
        return readings
    if readings.nvml.reason is None:
        return _nvml_answers(machine, readings)
    if machine.no_gpu is not None and not machine.settings.nvml.library:
        return ok(f"no GPU, and none expected: {machine.no_gpu}")
    return _nvml_silent(machine, readings)


def _nvml_answers(machine: Machine, readings: MachineTelemetry) -> Finding:
    if not readings.gpu_seen:
        if _gpu_expected(machine, readings):
            return problem("nothing tells how the GPU is", machine.fix(Situation.NO_GPU))
        return ok("no GPU, and none expected")
    document = {"telemetry": {"readings": msgspec.to_builtins(readings.readings)}}
    missing = gpu_table.missing(document)
    evidence = f"from {gpu_table.SOURCES[readings.level]}{f'; {missing}' if missing else ''}"
    if any(reading.absent == Absent.FAILED for reading in readings.readings):
        return advice(evidence, machine.fix(Situation.TELEMETRY_SILENT))
    return ok(evidence)


def _nvml_silent(machine: Machine, readings: MachineTelemetry) -> Finding:
    reason = str(readings.nvml.reason)
    meaning = MEANING.get(reason, reason.replace("_", " "))
    why = f"{meaning}: {readings.nvml.detail or 'no word'}"
    fix = readings.nvml.fix or machine.fix(Situation.TELEMETRY_SILENT)
    if readings.gpu_seen:
        source = gpu_table.SOURCES[readings.level]
        return advice(f"NVML is silent, the values come from {source}; {why}", fix)
    if not _gpu_expected(machine, readings):
        return ok("no GPU, and none expected")
    if readings.from_helper:
        return advice(f"NVML is silent, and no gpud runs that could ask elsewhere; {why}", fix)
    return problem(f"nothing tells how the GPU is; {why}", fix)


def _gpu_expected(machine: Machine, readings: MachineTelemetry) -> bool:
    """Say whether something points to a GPU here, by the agent's reading or by its own rules."""
    if exposed := readings.fact("exposed"):
        return exposed == "yes"
    if machine.settings.nvml.library:
        return True
    if machine.wsl == "2":
        facts = machine.stat(DEVICE)
        device = facts is not None and stat.S_ISCHR(facts.st_mode)
        enabled = machine.wsl_switch("gpu", "enabled") is not False
        return exposure.on_wsl(device=device, enabled=enabled) == "yes"
    cards = () if machine.container else _cards(machine)
    return exposure.on_linux(machine.names("/dev"), cards) == "yes"


def _cards(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield vendor and class of each PCI device."""
    for name in machine.names(BUS):
        vendor, kind = (machine.text(f"{BUS}/{name}/{file}") for file in ("vendor", "class"))
        yield vendor or "", kind or ""
