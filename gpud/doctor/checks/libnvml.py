"""Which libnvidia-ml is really loaded, and whether a stray one shadows it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from gpud.doctor import libraries
from gpud.doctor.finding import Finding, combined, ok, problem

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

TITLE = "libnvidia-ml"
ORDER = 80
SUMMARY = "the file that is really loaded, and a stray one that shadows it"
NAME = "libnvidia-ml.so.1"


def look(machine: Machine) -> Finding:
    """Load it as gpud does, without a call into it, and ask the kernel which file that was."""
    found = libraries.files(machine, NAME, machine.settings.nvml.library)
    wsl = machine.wsl == "2"
    return combined(_loaded(machine, found, wsl=wsl), libraries.strays(found, wsl=wsl))


def _loaded(machine: Machine, found: libraries.Files, *, wsl: bool) -> Finding:
    theirs = [str(machine.at(found.wsl))] if found.wsl else []  # never a FIFO: dlopen would wait
    words = []
    for path in [found.configured] if found.configured else [*theirs, NAME]:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            words.append(str(error))
            continue
        return libraries.loaded(
            libraries.inside(machine, libraries.mapped(NAME) or path), found, wsl=wsl
        )
    if machine.no_gpu is not None and not found.configured:
        return ok(machine.no_gpu)
    if not wsl and not found.configured:
        return ok(f"no NVIDIA driver on this machine ({NAME} is nowhere)")
    return problem(
        "; ".join(dict.fromkeys(words)),
        "install or update the NVIDIA driver in Windows; WSL provides the library"
        if wsl and not found.configured
        else "correct [nvml] library in gpud.toml, or leave it out",
    )
