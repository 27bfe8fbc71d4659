"""WSL by its traces: the kernel's name, and the settings file of the distribution."""

from __future__ import annotations

TRUE, FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})

Sections = dict[str, dict[str, str]]


def version(kernel: str) -> str:
    """Tell WSL ``"1"`` from ``"2"`` by the kernel's name, ``""`` for neither.

    Source: every spelling that was seen in the wild; systemd's own test misses some.
    """
    if "microsoft" not in kernel.lower() and "wsl" not in kernel.lower():
        return ""
    return "1" if kernel.startswith("4.4.") and "WSL2" not in kernel else "2"


def is_wsl2(kernel: str) -> bool:
    """Return whether the GPU is reached through WSL2, by the kernel's name.

    In a container too, whose kernel is the host's: what a context or a signal may cost there does
    not depend on who looks. What a person can do about it does (``advice.platform``).
    """
    return version(kernel) == "2"


def sections(text: str) -> Sections:
    """Read ``wsl.conf`` or ``.wslconfig``: section -> key -> value, names in lower case.

    As WSL itself does, a line that is neither is passed over and the first of two keys holds.
    """
    sections_by_name: Sections = {}
    current: dict[str, str] = {}
    for raw in text.removeprefix("\ufeff").splitlines():
        line = raw.strip()
        if line.startswith("[") and "]" in line:
            current = sections_by_name.setdefault(line[1 : line.index("]")].strip().lower(), {})
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            if equals:
                bare = value.strip() if '"' in value else value.partition("#")[0].strip()
                current.setdefault(key.strip().lower(), bare.strip('"'))
    return sections_by_name


def mounts_at(conf: Sections) -> str:
    """Give what the paths of Windows drives begin with: ``automount.root`` moves ``/mnt``."""
    root = conf.get("automount", {}).get("root", "")
    return root.rstrip("/") if root.startswith("/") else "/mnt"


def docker_desktop(conf: Sections) -> str:
    """Name the directory that Docker Desktop mounts its own files at."""
    return f"{mounts_at(conf)}/wsl/docker-desktop"


def switch(conf: Sections, section: str, key: str) -> bool | None:
    """Give a setting that is on or off; None when the file says neither."""
    word = conf.get(section, {}).get(key, "").lower()
    return True if word in TRUE else False if word in FALSE else None
