"""Telemetry of the running agent, else of the NVML helper that an agent would start."""

from __future__ import annotations

import sys

import msgspec

from gpud.core.advice import Situation
from gpud.core.health import Health
from gpud.core.telemetry import LEVELS, SEES_A_GPU
from gpud.doctor.finding import Finding, ok, unknown
from gpud.doctor.libraries import WSL_LIBRARIES
from gpud.doctor.machine import Machine
from gpud.doctor.reports import PublishedReading, PublishedSource

LIBRARY = "libnvidia-ml.so.1"
NVML = "nvml"


class MachineTelemetry(msgspec.Struct, frozen=True):
    """Readings of the GPUs apart from CUDA; ``nvml`` has no reason where NVML answers."""

    level: str = LEVELS[0]
    readings: tuple[PublishedReading, ...] = ()
    nvml: PublishedSource = PublishedSource()
    health: Health | None = None  # of the agent's component nvml
    from_helper: bool = False  # no agent runs

    @property
    def gpu_seen(self) -> bool:
        """Say whether the best source sees a GPU."""
        return LEVELS.index(self.level) >= SEES_A_GPU

    def fact(self, name: str) -> str | None:
        """Return a fact of the machine, such as ``driver_version``; None if it is not known."""
        values = (each.value for each in self.readings if each.field == name)
        return next((value for value in values if isinstance(value, str)), None)


class _Answer(PublishedSource, frozen=True):
    readings: tuple[PublishedReading, ...] | None = None


def read(machine: Machine) -> MachineTelemetry | Finding:
    """Return the agent's telemetry, or the helper's if no gpud runs. Errors: none.

    A finding instead: the agent has no telemetry yet, or never will.
    """
    if machine.root is None:
        return _from_helper(machine)
    telemetry = machine.agent.telemetry
    if telemetry.sources:
        level = telemetry.level if telemetry.level in LEVELS else LEVELS[0]
        nvml = telemetry.sources.get(NVML, PublishedSource())
        return MachineTelemetry(level, telemetry.readings, nvml, machine.health(NVML))
    if set(LEVELS[1:]) <= set(machine.settings.telemetry.disabled):
        return ok("every source is switched off: [telemetry] disabled")
    return unknown("the agent has not looked yet", "ask again in a moment")


def _from_helper(machine: Machine) -> MachineTelemetry:
    """Send one request to the NVML helper, which ends with its input."""
    places = [machine.settings.nvml.library]
    if not places[0]:
        places = [str(machine.at(f"{WSL_LIBRARIES}/{LIBRARY}")), LIBRARY]
    options = ["-I", "-m", "gpud.agent.telemetry.nvml", f"--platform={machine.platform}"]
    ended = machine.run([sys.executable, *options, *places], stdin="{}\n")
    if ended.code is None:
        fix = machine.fix(Situation.HUNG)
        hung = PublishedSource("hung", f"NVML: {ended.stderr}", fix)
        return MachineTelemetry(nvml=hung, from_helper=True)
    try:
        answer = msgspec.json.decode(ended.stdout, type=_Answer)
    except (msgspec.DecodeError, RecursionError):
        crashed = PublishedSource("crashed", f"NVML ended with {ended.code}")
        return MachineTelemetry(nvml=crashed, from_helper=True)
    if answer.readings is None:
        return MachineTelemetry(nvml=answer, from_helper=True)
    return MachineTelemetry(NVML, answer.readings, from_helper=True)
