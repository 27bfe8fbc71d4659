"""Driver libraries: the file that gpud loads, and the one that every other program loads.

gpud looks in WSL's folder first; other programs take what the dynamic linker gives. A Linux driver
package in the distribution wins there, and finds no GPU.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Machine

WSL_FOLDER = "/usr/lib/wsl"
WSL_LIBRARIES = f"{WSL_FOLDER}/lib"
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
"""Where packages of a distribution put theirs."""
CACHE = "/etc/ld.so.cache"
LDCONFIG = ("/usr/sbin/ldconfig", "/sbin/ldconfig")
ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_CACHED = re.compile(r"^\t(?P<name>\S+) \((?P<kind>[^)]*)\) => (?P<path>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LibraryFiles:
    """Files of one library. Paths are those of the machine."""

    name: str
    configured: str = ""  # in gpud.toml
    wsl: str | None = None  # WSL's own, if it is there
    by_variable: str | None = None  # the person's LD_LIBRARY_PATH gives this one
    by_cache: str | None = None  # ld.so.cache gives this one
    others: tuple[str, ...] = ()  # those that are not WSL's

    @property
    def linker(self) -> str | None:
        """The file that every other program of this person gets."""
        return self.by_variable or self.by_cache


def files(machine: Machine, name: str, configured: str) -> LibraryFiles:
    """Find the files of a library; nothing is loaded."""
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    variable = [f"{folder.rstrip('/')}/{name}" for folder in folders if folder.startswith("/")]
    cached = _cached(machine, name)
    places = [*variable, *cached, *(f"{place}/{name}" for place in PLACES)]
    present = dict.fromkeys(path for path in places if _is_file(machine, path))
    wsl = f"{WSL_LIBRARIES}/{name}"
    return LibraryFiles(
        name=name,
        configured=configured,
        wsl=wsl if _is_file(machine, wsl) else None,
        by_variable=next((path for path in variable if path in present), None),
        by_cache=next((path for path in cached if path in present), None),
        others=tuple(p for p in present if not is_wsl(machine.inside(str(machine.at(p))))),
    )


def _is_file(machine: Machine, path: str) -> bool:
    return os.path.isfile(machine.at(path))  # noqa: PTH113  # Path raises


def is_wsl(path: str) -> bool:
    """Say whether a path, links followed, is one of those that WSL brings."""
    return path.startswith(f"{WSL_FOLDER}/")


def mapped(name: str) -> str | None:
    """Return the file of a library that this process has loaded: only the kernel knows it."""
    stem = name.partition(".so")[0] + ".so"
    maps = Path("/proc/self/maps").read_text(errors="replace")
    paths = (f"/{line.partition('/')[2]}" for line in maps.splitlines() if "/" in line)
    return next((path for path in paths if Path(path).name.startswith(stem)), None)


def strays(machine: Machine, library: LibraryFiles) -> Finding | None:
    """Check which file other programs load; None if that is as it should be."""
    if machine.wsl != "2" or library.wsl is None:
        return None
    first = library.linker
    if first is not None and first in library.others:
        if first == library.by_variable:
            return problem(
                f"LD_LIBRARY_PATH makes other programs load {first}, not WSL's",
                f"take {first.rpartition('/')[0]} out of LD_LIBRARY_PATH",
            )
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
            f"the linker does not know {library.name}: other programs do not find WSL's",
            "sudo ldconfig; [automount] ldconfig=false in wsl.conf keeps WSL from doing that",
        )
    return None


def loaded(machine: Machine, place: str, library: LibraryFiles) -> Finding:
    """Check the file that gpud itself loads."""
    path = machine.inside(place)
    if library.configured:
        return ok(f"{path}, as configured")
    if machine.wsl == "2" and not is_wsl(path):
        return problem(
            f"gpud loads {path}, which is not WSL's",
            f"remove the package that owns it (`dpkg -S {path}`), then wsl --shutdown from Windows",
        )
    return ok(path)


def _cached(machine: Machine, name: str) -> list[str]:
    """Read the linker's cache with ldconfig, which changes nothing."""
    program = next((path for path in LDCONFIG if Path(path).is_file()), None)
    if program is None or not machine.is_file(CACHE):
        return []
    listing = machine.run([program, "-p", "-C", str(machine.at(CACHE))]).stdout
    architecture = ARCHITECTURES.get(os.uname().machine, "")
    return [
        entry["path"]
        for entry in _CACHED.finditer(listing)
        if entry["name"] == name and architecture in entry["kind"]
    ]
