"""Facts about this machine, read once at start. Source: /proc and /etc below ``sysroot``."""

from __future__ import annotations

import re
from pathlib import Path

from gpud import regular_file
from gpud.core import wsl
from gpud.core.advice import CONTAINER_MARKS


def facts(sysroot: str) -> dict[str, str]:
    """Give wsl ("1", "2" or "" for none), kernel, distro; what cannot be read is left out.

    In a container there is ``container``, "1", too.
    """
    root = Path(sysroot)
    machine: dict[str, str] = {}
    kernel = _text(root / "proc/sys/kernel/osrelease")
    if kernel is not None:
        machine["kernel"] = kernel
        machine["wsl"] = wsl.version(kernel)
    distro = _text(root / "etc/os-release")
    if distro is not None and (
        name := re.search(r'^PRETTY_NAME="?([^"\n]*)', distro, re.MULTILINE)
    ):
        machine["distro"] = name[1]
    if any((root / mark.lstrip("/")).exists() for mark in CONTAINER_MARKS):
        machine["container"] = "1"
    return machine


def boot_id() -> str:
    """Name this boot of this VM; empty when the kernel does not say."""
    return _text(Path("/proc/sys/kernel/random/boot_id")) or ""


def _text(path: Path) -> str | None:
    content = regular_file.text(path)
    return None if content is None else content[:4096].strip()
