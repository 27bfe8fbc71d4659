"""Replacing of the agent's files in one moment: who reads gets the old file or the new one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Write a file that everybody may read, and rename it into place.

    Errors: ``OSError``; then the file of before is still there, and nothing else.
    """
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(content)
        temporary.chmod(0o644)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
