"""Control groups of a machine's own: it sees them as the whole, and nothing of them stays behind.

WSL2 mounts version 2 or, with ``[automount] cgroups=v1``, version 1; here it is what the kernel
this runs on has, since a controller can be in one of the two only.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/mounts")
TOP = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of groups. ``kind`` is cgroup or cgroup2; ``options`` name controllers."""

    place: Path
    kind: str
    options: str


def hierarchies() -> list[Hierarchy]:
    """Give what is mounted at /sys/fs/cgroup and directly below."""
    found = []
    for line in MOUNTS.read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in {"cgroup", "cgroup2"} and place.startswith(TOP):
            general = {"rw", "ro", "relatime", "nosuid", "nodev", "noexec", "nsdelegate"}
            named = [o for o in options.split(",") if o not in general and "memory_" not in o]
            found.append(Hierarchy(Path(place), kind, ",".join(named)))
    return found


@dataclass(frozen=True, slots=True)
class Groups:
    """A group called ``name`` in every hierarchy."""

    name: str

    def make(self) -> None:
        for hierarchy in hierarchies():
            group = hierarchy.place / self.name
            group.mkdir(exist_ok=True)
            for inherited in ("cpuset.cpus", "cpuset.mems"):
                # Version 1 starts them empty, and then no process can join.
                with contextlib.suppress(OSError):
                    (group / inherited).write_text((hierarchy.place / inherited).read_text())
            with contextlib.suppress(OSError):
                (group / "cgroup.clone_children").write_text("1")

    def files(self) -> list[str]:
        """Where a process writes its pid to join."""
        return [str(h.place / self.name / "cgroup.procs") for h in hierarchies()]

    def table(self) -> str:
        """One line a hierarchy for boot.sh: kind, options, place."""
        return "".join(f"{h.kind} {h.options or 'rw'} {h.place}\n" for h in hierarchies())

    def remove(self) -> None:
        """Every process of it must have ended."""
        for hierarchy in hierarchies():
            for folder, _, _ in os.walk(hierarchy.place / self.name, topdown=False):
                Path(folder).rmdir()
