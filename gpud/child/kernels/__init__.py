"""The embedded PTX, found by the kernel a probe asks for."""

from __future__ import annotations

import os
import re
from functools import cache

from gpud import regular_file
from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason

LARGEST = 4 << 20


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
    # A plain folder: pathlib takes a tenth of the start of a child, importlib.resources half of it.
    files = {file.name: file.path for file in os.scandir(__path__[0]) if file.name.endswith(".ptx")}
    return {name: regular_file.read(files[name], LARGEST) for name in sorted(files)}
