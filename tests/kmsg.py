"""Kernel's log that a test writes: /dev/kmsg below a sysroot, one record for each read."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Kernel:
    """A pipe in packet mode: one write is one record, and one read gives one, as from kmsg."""

    def __init__(self, sysroot: Path) -> None:
        self.sysroot = sysroot
        (sysroot / "dev").mkdir(parents=True, exist_ok=True)
        os.mkfifo(sysroot / "dev/kmsg")
        self._fd = os.open(sysroot / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_RDWR | os.O_NONBLOCK | os.O_DIRECT)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 256 * 4096)  # a page for each record
        self._sequence = 0

    def says(self, text: str, *, at_s: float = 5.0, priority: int = 3) -> None:
        self._sequence += 1
        record = f"{priority},{self._sequence},{int(at_s * 1e6)},-;{text}\n SUBSYSTEM=misc\n"
        os.write(self._fd, record.encode())

    def close(self) -> None:
        os.close(self._fd)
