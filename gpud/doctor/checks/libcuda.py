"""Check of libcuda: the file that is loaded, the GPUs it offers, and a stray file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from gpud.core import wire
from gpud.core.advice import Situation
from gpud.core.errors import WireError
from gpud.core.sample import Inventory, Job
from gpud.core.wsl import boot_rest_s
from gpud.doctor import libraries
from gpud.doctor.finding import Finding, advice, combined, ok, problem, unknown
from gpud.doctor.libraries import LibraryFiles
from gpud.doctor.machine import Machine

TITLE = "libcuda"
ORDER = 70
SUMMARY = "the file that is really loaded, the GPUs it offers, and a stray one that shadows it"
MAY_BLOCK = True  # the driver
NAME = "libcuda.so.1"
NEVER_S = 60.0
"""The child does GPU work and is not killed: it ends itself after its start limit."""


def look(machine: Machine) -> Finding:
    """Take the running agent's inventory, else ask a probe child for the GPUs."""
    library = libraries.files(machine, NAME, machine.settings.cuda.library)
    return combined(_offered(machine, library), libraries.strays(machine, library))


def _offered(machine: Machine, library: LibraryFiles) -> Finding:
    if machine.root is None:
        return _asked(machine, library)
    if machine.agent.cuda is not None:
        return _inventory(machine, machine.agent.cuda, library)
    if health := machine.unwell("cuda"):
        return problem(
            f"the agent says: {health.detail}", health.fix or machine.fix(Situation.HUNG)
        )
    return unknown("the agent has not looked yet", "ask again in a moment")


def _asked(machine: Machine, library: LibraryFiles) -> Finding:
    """Ask a probe child, which makes no context."""
    if machine.wsl == "2" and boot_rest_s(
        machine.settings.gate.boot_grace_s, machine.text("/proc/uptime")
    ):
        grace_s = machine.settings.gate.boot_grace_s
        return unknown(f"not asked in the first {grace_s:g} s of WSL", "ask again in a minute")
    settings = machine.settings
    job = Job(
        cuda_library=settings.cuda.library,
        sysroot=settings.sysroot,
        start_limit_s=machine.command_limit_s,
    )
    command = [sys.executable, "-I", "-m", "gpud.child", "--inventory"]
    ended = machine.run(command, stdin=json.dumps(asdict(job)), limit_s=NEVER_S)
    try:
        return _inventory(machine, wire.decode(ended.stdout.encode(), Inventory), library)
    except WireError:
        if ended.code is None or ended.code < 0:
            place = library.configured or library.wsl or library.linker or NAME
            hung = machine.fix(Situation.HUNG)
            return problem(f"{place} does not answer: the driver hangs", hung)
        return unknown(f"the probe child says: {ended.stderr.strip()[-200:]}")


def _inventory(machine: Machine, inventory: Inventory, library: LibraryFiles) -> Finding:
    """Check what CUDA offers; without a GPU to expect, none is no problem."""
    failure = inventory.failure
    if failure is None and inventory.library is not None:
        gpus = ", ".join(device.name for device in inventory.devices)
        file = libraries.loaded(machine, inventory.library, library)
        return combined(file, ok(f"CUDA {inventory.cuda_version}, {gpus}"))
    if machine.no_gpu is not None and not library.configured:
        return ok(machine.no_gpu)
    detail = failure.detail if failure is not None else "CUDA offers nothing"
    health = machine.health("cuda")
    fix = (health and health.fix) or (failure and failure.advice) or machine.fix(Situation.HUNG)
    if machine.wsl == "2" or library.configured:
        return problem(detail, fix)
    if library.linker is None:
        return ok(f"no NVIDIA driver on this machine, so no GPU to watch ({NAME} is nowhere)")
    return advice(detail, fix)
