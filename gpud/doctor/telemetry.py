"""What telemetry says: the running agent's word, else that of the helper it would start."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpud.core.advice import Situation
from gpud.core.telemetry import LEVELS
from gpud.doctor.finding import ok, unknown
from gpud.doctor.libraries import WSL_LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpud.doctor.finding import Finding
    from gpud.doctor.machine import Machine

LIBRARY = "libnvidia-ml.so.1"
NVML = "nvml"


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of the GPUs apart from CUDA. ``asked``: the helper was, for no agent runs.

    Shapes: ``readings`` as in the status document, ``trouble`` NVML's reason, detail and fix; empty
    where NVML answers. ``health`` is the agent's word for ``nvml``.
    """

    level: str = LEVELS[0]
    readings: tuple[Mapping[str, Any], ...] = ()
    trouble: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)
    asked: bool = False

    def machine(self, name: str) -> str | None:
        """Give a fact of the machine, such as ``driver_version``; None when it is not known."""
        values = (one.get("value") for one in self.readings if one.get("field") == name)
        return next((value for value in values if isinstance(value, str)), None)


def said(machine: Machine) -> Said | None:
    """Ask whoever knows; None while a running agent has not looked yet. Errors: none."""
    if machine.root is None:
        return asked(machine)
    return told(machine.agent, machine.health(NVML))


def silent(machine: Machine) -> Finding:
    """Judge that ``said`` has nothing: it is too early, or nobody is ever asked."""
    if set(LEVELS[1:]) <= set(machine.settings.telemetry.disabled):
        return ok("every source is switched off: [telemetry] disabled")
    return unknown("the agent has not looked yet", "ask again in a moment")


def told(agent: Mapping[str, Any], health: Mapping[str, Any]) -> Said | None:
    """Read the agent's document, of which anything may be missing or of another kind."""
    telemetry = agent.get("telemetry")
    sources = telemetry.get("sources") if isinstance(telemetry, dict) else None
    if not isinstance(telemetry, dict) or not isinstance(sources, dict) or not sources:
        return None
    nvml = sources.get(NVML)
    reason = nvml.get("reason") if isinstance(nvml, dict) else None
    level = telemetry.get("level")
    return Said(
        level if level in LEVELS else LEVELS[0],
        tuple(_readings(telemetry.get("readings"))),
        nvml if isinstance(nvml, dict) and reason else {},
        health,
    )


def asked(machine: Machine) -> Said:
    """Put one question to the helper the agent would start; its input ends, and so does it."""
    places = [machine.settings.nvml.library]
    if not places[0]:
        places = [str(machine.at(f"{WSL_LIBRARIES}/{LIBRARY}")), LIBRARY]
    options = ["-I", "-m", "gpud.agent.nvml", f"--platform={machine.platform}"]
    command = [sys.executable, *options, *places]
    ended = machine.ask(command, stdin="{}\n")
    if ended.code is None:
        hung = {"reason": "hung", "detail": f"NVML: {ended.stderr}"}
        return Said(trouble=hung | {"fix": machine.fix(Situation.HUNG)}, asked=True)
    try:
        answer = json.loads(ended.stdout)
        readings = answer.get("readings")
    except (ValueError, AttributeError, RecursionError):
        crashed = {"reason": "crashed", "detail": f"NVML ended with {ended.code}"}
        return Said(trouble=crashed, asked=True)
    if readings is None:
        return Said(trouble=answer, asked=True)
    return Said(NVML, tuple(_readings(readings)), asked=True)


def _readings(given: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(given, list):
        for reading in given:
            if isinstance(reading, dict) and isinstance(reading.get("field"), str):
                gpu = reading.get("gpu")
                yield {**reading, "gpu": gpu if isinstance(gpu, int) else None}
