"""Facts about this machine, read once at start. Source: /proc and /etc below ``sysroot``."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud import regular_file
from gpud.core import advice, wsl
from gpud.core.advice import CONTAINER_MARKS
from gpud.core.clock import Instant
from gpud.show.words import GPU_WORK_BEGINS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpud.core.settings import Settings


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


def gpu_from(settings: Settings, machine: Mapping[str, str], now: Instant) -> Instant | None:
    """Give when GPU work may begin, None for at once; ``machine`` are the facts of this machine."""
    if advice.of(machine) is not advice.Platform.WSL2:
        return None
    rest_s = wsl.boot_rest_s(
        settings.gate.boot_grace_s, _text(Path(settings.sysroot, "proc/uptime"))
    )
    return Instant(now.wall_s + rest_s, now.mono_s + rest_s) if rest_s else None


def begins(at: Instant) -> str:
    """Return the sentence that says when GPU work begins."""
    return GPU_WORK_BEGINS.format(moment=time.strftime("%X", time.localtime(at.wall_s)))


def boot_id() -> str:
    """Name this boot of this VM; empty when the kernel does not say."""
    return _text(Path("/proc/sys/kernel/random/boot_id")) or ""


def _text(path: Path) -> str | None:
    content = regular_file.text(path)
    return None if content is None else content[:4096].strip()
