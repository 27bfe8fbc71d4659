"""Check of libnvidia-ml: the file that is loaded, and a stray file."""

from __future__ import annotations

import ctypes

from gpud.doctor import libraries
from gpud.doctor.finding import Finding, combined, ok, problem
from gpud.doctor.libraries import LibraryFiles
from gpud.doctor.machine import Machine

TITLE = "libnvidia-ml"
ORDER = 80
SUMMARY = "the file that is really loaded, and a stray one that shadows it"
MAY_BLOCK = True  # the driver
NAME = "libnvidia-ml.so.1"


def look(machine: Machine) -> Finding:
    """Load it as gpud does, without a call into it, and ask the kernel which file that was."""
    library = libraries.files(machine, NAME, machine.settings.nvml.library)
    return combined(_loaded(machine, library), libraries.strays(machine, library))


def _loaded(machine: Machine, library: LibraryFiles) -> Finding:
    wsl = [str(machine.at(library.wsl))] if library.wsl else []
    errors = []
    for path in [library.configured] if library.configured else [*wsl, NAME]:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            errors.append(str(error))
            continue
        return libraries.loaded(machine, libraries.mapped(NAME) or path, library)
    evidence = "; ".join(dict.fromkeys(errors))
    if library.configured:
        return problem(evidence, "correct [nvml] library in gpud.toml, or leave it out")
    if machine.no_gpu is not None:
        return ok(machine.no_gpu)
    if machine.wsl != "2":
        return ok(f"no NVIDIA driver on this machine ({NAME} is nowhere)")
    fix = "install or update the NVIDIA driver in Windows; WSL provides the library"
    return problem(evidence, fix)
