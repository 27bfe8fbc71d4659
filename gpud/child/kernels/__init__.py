"""The embedded PTX and machine code, found by the kernel a probe asks for."""

from __future__ import annotations

import os
from functools import cache

from gpud import regular_file
from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason

LARGEST = 4 << 20


@cache
def image(kernel: str) -> tuple[str, bytes]:
    """Give the name and the text of the PTX file that defines ``kernel``.

    Errors: ``ProbeError`` (internal) where no file of this folder does.
    """
    entry = b".entry %s(" % kernel.encode()
    for name, text in sources().items():
        if entry in text:
            return name, text
    raise ProbeError(Failure(Reason.INTERNAL, f"no PTX file defines the kernel {kernel}"))


@cache
def sources() -> dict[str, bytes]:
    """Read the PTX files, once, in the order of their names."""
    files = _files(".ptx")
    return {name: regular_file.read(files[name], LARGEST) for name in sorted(files)}


def digest() -> str:
    """Read the SHA-256 of all PTX that ``deploy/build-ptx`` wrote: hashlib loads all of OpenSSL."""
    return regular_file.read(_files(".sha256")["ptx.sha256"], LARGEST).decode().strip()


def code(file: str) -> tuple[str, bytes]:
    """Give the name and the content of a file of machine code."""
    return file, regular_file.read(_files(".cubin")[file], LARGEST)


def pinned(stem: str, capability: str) -> str | None:
    """Return the file of machine code that a GPU of a compute capability ("8.6") can run.

    Machine code runs on its own minor number and on later ones of the same major number.
    """
    major, minor = map(int, capability.split("."))
    able = [
        (number % 10, name)
        for name in _files(".cubin")
        if name.startswith(f"{stem}.sm_")
        if (number := int(name.split(".")[1].removeprefix("sm_"))) // 10 == major
        and number % 10 <= minor
    ]
    return max(able)[1] if able else None


def _files(ending: str) -> dict[str, str]:
    """Return the paths of the files of this folder by name."""
    # A plain folder: pathlib takes a tenth of the start of a child, importlib.resources half of it.
    return {file.name: file.path for file in os.scandir(__path__[0]) if file.name.endswith(ending)}
