"""Checks of the driver libraries: the file that gpud loads, and the one other programs load.

gpud looks in WSL's folder first; other programs take what the dynamic linker gives. A Linux driver
package in the distribution wins there, and finds no GPU.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from gpud.core.advice import Situation
from gpud.core.health import Level
from gpud.doctor.finding import Finding, advice, check, combined, not_looked, ok, passed_on, problem
from gpud.doctor.machine import Machine

CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
WSL_FOLDER = "/usr/lib/wsl/"
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
"""Where packages of a distribution put theirs."""
CACHE = "/etc/ld.so.cache"
ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_CACHED = re.compile(r"^\t(?P<name>\S+) \((?P<kind>[^)]*)\) => (?P<path>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LibraryFiles:
    """Files of one library. Paths are those of the machine."""

    wsl: str | None  # WSL's own, if it is there
    by_variable: str | None  # the person's LD_LIBRARY_PATH gives this one
    linker: str | None  # every other program of this person gets this one
    others: tuple[str, ...]  # those that are not WSL's


@check(70, "libcuda", may_block=True)  # LD_LIBRARY_PATH may lead to a Windows drive
def libcuda(machine: Machine) -> Finding:
    """The file loaded, its GPUs, stray libraries beside it."""
    strays = _strays(machine, CUDA) or _strays(machine, NVML)
    return combined(_offered(machine), strays)


def _offered(machine: Machine) -> Finding:
    """Pass on the running agent's inventory."""
    inventory, health = machine.agent.cuda, machine.health("cuda")
    if machine.root is None or health is None:
        return not_looked(machine) if machine.no_gpu is None else ok(machine.no_gpu)
    if health.level != Level.OK or inventory is None or inventory.library is None:
        evidence = health.detail or "CUDA offers nothing"
        return passed_on(health, evidence, machine.fix(Situation.HUNG))
    names = ", ".join(device.name for device in inventory.devices)
    file = _own_file(machine, inventory.library)
    return combined(file, ok(f"CUDA {inventory.cuda_version}, {names}"))


def _own_file(machine: Machine, place: str) -> Finding:
    """Check the file that gpud itself loads."""
    path = machine.inside(place)
    if machine.settings.cuda.library:
        return ok(f"{path}, as configured")
    if machine.wsl == "2" and not path.startswith(WSL_FOLDER):
        return problem(
            f"gpud loads {path}, which is not WSL's",
            f"remove the package that owns it (`dpkg -S {path}`), then wsl --shutdown from Windows",
        )
    return ok(path)


def _strays(machine: Machine, name: str) -> Finding | None:
    """Check which file other programs load; None if that is as it should be."""
    library = _files(machine, name)
    if machine.wsl != "2" or library.wsl is None:
        return None
    first = library.linker
    if first in library.others and first == library.by_variable:
        return problem(
            f"LD_LIBRARY_PATH makes other programs load {first}, not WSL's",
            f"take {first.rpartition('/')[0]} out of LD_LIBRARY_PATH",
        )
    if first in library.others:
        return problem(
            f"other programs load {first}, a Linux driver that shadows WSL's",
            f"remove the package that owns it (`dpkg -S {first}`), then sudo ldconfig",
        )
    if library.others:
        return advice(
            f"{library.others[0]} lies beside WSL's and is not used now",
            f"remove the package that owns it: `dpkg -S {library.others[0]}`",
        )
    if first is None:
        return advice(
            f"the linker does not know {name}: other programs do not find WSL's",
            "sudo ldconfig; [automount] ldconfig=false in wsl.conf keeps WSL from doing that",
        )
    return None


def _files(machine: Machine, name: str) -> LibraryFiles:
    """Find the files of a library; nothing is loaded."""
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    variable = [f"{folder.rstrip('/')}/{name}" for folder in folders if folder.startswith("/")]
    cached = _cached(machine, name)
    wsl = f"{WSL_FOLDER}lib/{name}"
    places = [wsl, *variable, *cached, *(f"{place}/{name}" for place in PLACES)]
    present = [p for p in dict.fromkeys(places) if os.path.isfile(machine.at(p))]  # noqa: PTH113
    by_variable = next((path for path in variable if path in present), None)
    others = (p for p in present if not machine.inside(str(machine.at(p))).startswith(WSL_FOLDER))
    return LibraryFiles(
        wsl=wsl if wsl in present else None,
        by_variable=by_variable,
        linker=by_variable or next((path for path in cached if path in present), None),
        others=tuple(path for path in others if path != wsl),
    )


def _cached(machine: Machine, name: str) -> list[str]:
    """Read the linker's cache with ldconfig, which changes nothing."""
    if not os.path.isfile(machine.at(CACHE)):  # noqa: PTH113
        return []
    listing = machine.run("/sbin/ldconfig", "-p", "-C", str(machine.at(CACHE))).stdout
    architecture = ARCHITECTURES.get(os.uname().machine, "")
    return [
        entry["path"]
        for entry in _CACHED.finditer(listing)
        if entry["name"] == name and architecture in entry["kind"]
    ]
