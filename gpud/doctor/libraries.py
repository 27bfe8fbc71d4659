"""Which file a driver library is: for gpud, and for every other program on the machine.

gpud looks in WSL's folder first; everybody else takes what the dynamic linker gives. A Linux driver
package in the distribution wins there, and finds no GPU.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.doctor.finding import Finding, advice, ok, problem
from gpud.doctor.machine import Kind

if TYPE_CHECKING:
    from gpud.doctor.machine import Machine

WSL_FOLDER = "/usr/lib/wsl"
WSL_LIBRARIES = f"{WSL_FOLDER}/lib"
PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
"""Where packages of a distribution put theirs."""
LDCONFIG = ("/usr/sbin/ldconfig", "/sbin/ldconfig")
ARCHITECTURES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_CACHED = re.compile(r"^\t(?P<name>\S+) \((?P<kind>[^)]*)\) => (?P<path>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Files:
    """Where one library lies. Paths are those of the machine, links followed where it says real."""

    name: str
    configured: str = ""  # in gpud.toml
    wsl: str | None = None  # WSL's own, when it is there
    by_variable: str | None = None  # LD_LIBRARY_PATH of the person names this one
    by_cache: tuple[str, ...] = ()  # ld.so.cache, in the linker's order
    others: tuple[str, ...] = ()  # real files that lie elsewhere

    @property
    def linker(self) -> str | None:
        """What every other program of this person gets."""
        return self.by_variable or next(iter(self.by_cache), None)


def files(machine: Machine, name: str, configured: str) -> Files:
    """Look where a library lies. Nothing is loaded."""
    theirs = f"{WSL_LIBRARIES}/{name}"
    variable = [
        f"{folder.rstrip('/')}/{name}"
        for folder in machine.environ.get("LD_LIBRARY_PATH", "").split(":")
        if folder.startswith("/")
    ]
    cached = _cached(machine, name)
    places = [*variable, *cached, *(f"{place}/{name}" for place in PLACES)]
    present = dict.fromkeys(path for path in places if os.path.isfile(machine.at(path)))  # noqa: PTH113  # Path raises
    return Files(
        name=name,
        configured=configured,
        wsl=theirs if os.path.isfile(machine.at(theirs)) else None,  # noqa: PTH113
        by_variable=next((path for path in variable if path in present), None),
        by_cache=tuple(path for path in cached if path in present),
        others=tuple(path for path in present if not is_wsl(real(machine, path))),
    )


def real(machine: Machine, path: str) -> str:
    """Follow links, and give a path of the machine again."""
    return inside(machine, str(machine.at(path)))


def inside(machine: Machine, place: str) -> str:
    """Turn the place of a file, links followed, into a path of the machine."""
    root = os.path.realpath(machine.settings.sysroot).rstrip("/")
    return os.path.realpath(place).removeprefix(root)


def is_wsl(path: str) -> bool:
    """Say whether a real path is one of those that WSL brings."""
    return path.startswith(f"{WSL_FOLDER}/")


def mapped(name: str, pid: str = "self") -> str | None:
    """Find the file of a library that a process has loaded: only the kernel knows which it was."""
    stem = name.partition(".so")[0] + ".so"
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return None
    paths = (f"/{line.partition('/')[2]}" for line in maps.splitlines() if "/" in line)
    return next((path for path in paths if Path(path).name.startswith(stem)), None)


def strays(found: Files, *, wsl: bool) -> Finding | None:
    """Judge what other programs get; None when that is as it should be."""
    if not wsl or found.wsl is None:
        return None
    first = found.linker
    if first is not None and first in found.others:
        if first == found.by_variable:
            return problem(
                f"LD_LIBRARY_PATH makes other programs load {first}, not WSL's",
                f"take {first.rpartition('/')[0]} out of LD_LIBRARY_PATH",
            )
        return problem(
            f"other programs load {first}, a Linux driver that shadows WSL's",
            f"remove the package that owns it (`dpkg -S {first}`), then sudo ldconfig",
        )
    if found.others:
        return advice(
            f"{found.others[0]} lies beside WSL's and is not used now",
            f"remove the package that owns it: `dpkg -S {found.others[0]}`",
        )
    if first is None:
        return advice(
            f"the linker does not know {found.name}: other programs do not find WSL's",
            "sudo ldconfig; [automount] ldconfig=false in wsl.conf keeps WSL from doing that",
        )
    return None


def loaded(path: str, found: Files, *, wsl: bool) -> Finding:
    """Judge the file gpud itself really loads: a real path of the machine."""
    if found.configured:
        return ok(f"{path}, as configured")
    if wsl and not is_wsl(path):
        return problem(
            f"gpud loads {path}, which is not WSL's",
            f"remove the package that owns it (`dpkg -S {path}`), then wsl --shutdown from Windows",
        )
    return ok(path)


def _cached(machine: Machine, name: str) -> list[str]:
    """Ask ldconfig, which reads the cache and changes nothing."""
    program = next((path for path in LDCONFIG if Path(path).is_file()), None)
    if program is None or machine.kind("/etc/ld.so.cache") is not Kind.FILE:
        return []
    said = machine.ask([program, "-p", "-C", str(machine.at("/etc/ld.so.cache"))])
    architecture = ARCHITECTURES.get(os.uname().machine, "")
    return [
        found["path"]
        for found in _CACHED.finditer(said.stdout)
        if found["name"] == name and architecture in found["kind"]
    ]
