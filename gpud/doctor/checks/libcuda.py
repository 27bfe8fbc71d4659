"""Which libcuda gpud really loads, whether it offers a GPU, and whether a stray one shadows it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from gpud.core import wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.gate import boot_rest_s
from gpud.core.sample import Inventory, Job
from gpud.doctor import libraries
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "libcuda"
ORDER = 70
SUMMARY = "the file that is really loaded, the GPUs it offers, and a stray one that shadows it"
NAME = "libcuda.so.1"
START_LIMIT_S = 1.0
"""The child ends itself a second after its start at the latest: nobody kills GPU work here."""
NEVER_S = 60.0


def look(machine: Machine) -> Finding:
    """Take the running agent's word, else ask a probe child for the GPUs there are."""
    found = libraries.files(machine, NAME, machine.settings.cuda.library)
    return combined(_offered(machine, found), libraries.strays(found, wsl=machine.wsl == "2"))


def _offered(machine: Machine, found: libraries.Files) -> Finding:
    if machine.root is not None:
        seen = told(machine.agent)
        if seen is not None:
            return judged(machine, seen, found)
        health = machine.health("cuda")
        if health.get("level"):
            fix = str(health.get("fix") or machine.fix(Situation.HUNG))
            return problem(f"the agent says: {health.get('detail')}", fix)
        return unknown("the agent has not looked yet", "ask again in a moment")
    return _asked(machine, found)


def _asked(machine: Machine, found: libraries.Files) -> Finding:
    """Ask a probe child, which makes no context."""
    if machine.wsl == "2" and boot_rest_s(machine.settings.gate, machine.text("/proc/uptime")):
        grace_s = machine.settings.gate.boot_grace_s
        return unknown(f"not asked in the first {grace_s:g} s of WSL", "ask again in a minute")
    job = Job(
        cuda_library=machine.settings.cuda.library,
        sysroot=machine.settings.sysroot,
        start_limit_s=START_LIMIT_S,
    )
    command = [sys.executable, "-I", "-m", "gpud.child", "--inventory"]
    ended = machine.ask(command, stdin=json.dumps(asdict(job)), within_s=NEVER_S)
    try:
        return judged(machine, wire.decode(ended.stdout.encode(), Inventory), found)
    except WireError:
        if ended.code is None or ended.code < 0:
            place = found.configured or found.wsl or found.linker or NAME
            return problem(
                f"{place} does not answer: the driver hangs", machine.fix(Situation.HUNG)
            )
        return unknown(f"the probe child says: {ended.stderr.strip()[-200:]}")


def told(agent: Any) -> Inventory | None:  # noqa: ANN401  # a JSON document
    """Give the inventory in the agent's document, None when there is none that holds together."""
    try:
        return msgspec.convert(agent.get("cuda"), Inventory | None)
    except msgspec.ValidationError:
        return None


def judged(machine: Machine, seen: Inventory, found: libraries.Files) -> Finding:
    """Judge what CUDA offers; without a GPU to expect, none is no problem."""
    wsl = machine.wsl == "2"
    if seen.failure is None and seen.library is not None:
        file = libraries.loaded(libraries.inside(machine, seen.library), found, wsl=wsl)
        gpus = ", ".join(device.name for device in seen.devices)
        return combined(file, ok(f"CUDA {seen.cuda_version}, {gpus}"))
    detail = seen.failure.detail if seen.failure is not None else "CUDA offers nothing"
    said = seen.failure.advice if seen.failure is not None else None
    said = machine.health("cuda").get("fix") or said  # the agent knows what others say too
    fix = said or machine.fix(Situation.HUNG)
    if machine.no_gpu is not None and not found.configured:
        return ok(machine.no_gpu)
    if wsl or found.configured:
        return problem(detail, fix)
    if found.linker is None:
        return ok(f"no NVIDIA driver on this machine, so no GPU to watch ({NAME} is nowhere)")
    return advice(detail, fix)
