"""The embedded PTX, found by the kernel a probe asks for."""

from __future__ import annotations

import re
from pathlib import Path

from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason


def image(kernel: str) -> tuple[str, bytes]:
    """Give the name and the text of the PTX file that defines ``kernel``.

    Errors: ``ProbeError`` (internal) where no file of this folder does.
    """
    entry = re.compile(rb"\.entry\s+" + re.escape(kernel.encode()) + rb"\b")
    # A plain folder: importlib.resources takes longer to load than everything else a child does.
    for file in sorted(Path(__file__).parent.glob("*.ptx")):
        if entry.search(text := file.read_bytes()):
            return file.name, text
    raise ProbeError(Failure(Reason.INTERNAL, f"no PTX file defines the kernel {kernel}"))
