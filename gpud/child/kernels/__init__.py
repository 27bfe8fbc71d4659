"""The embedded PTX, found by the kernel a probe asks for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason


def image(kernel: str) -> tuple[str, bytes]:
    """Give the name and the text of the PTX file that defines ``kernel``.

    Errors: ``ProbeError`` (internal) where no file of this folder does.
    """
    entry = re.compile(rb"\.entry\s+" + re.escape(kernel.encode()) + rb"\b")
    for name, text in sources().items():
        if entry.search(text):
            return name, text
    raise ProbeError(Failure(Reason.INTERNAL, f"no PTX file defines the kernel {kernel}"))


@cache
def sources() -> dict[str, bytes]:
    """Read the PTX files, once, in the order of their names."""
    # A plain folder: importlib.resources takes longer to load than everything else a child does.
    files = sorted(Path(__file__).parent.glob("*.ptx"))
    return {file.name: file.read_bytes() for file in files}
