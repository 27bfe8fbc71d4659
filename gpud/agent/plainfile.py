"""The beginning of a small file of the machine, read without ever waiting for anybody."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 64 << 10


def text(path: Path, largest: int = LARGEST) -> str | None:
    """Give the beginning of a regular file; None for none, and for what is no such file.

    A pipe or a device in its place would let whoever opens or reads it wait for its other end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(largest).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
