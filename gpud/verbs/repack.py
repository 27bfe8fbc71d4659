"""Wheel of the gpud that runs, made from its installed files: no installer keeps the original."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import metadata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALWAYS: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same files are the same wheel."""
KEPT: Final = ("METADATA", "WHEEL", "entry_points.txt")
"""Files of the dist-info that a wheel has; the others are the installer's."""


def repacked(folder: Path) -> Path:
    """Write the wheel into a folder. Errors: ``PackageNotFoundError``, ``OSError``."""
    found = metadata.distribution("gpud")
    info = f"gpud-{found.version}.dist-info"
    wheel = folder / f"gpud-{found.version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in sorted(_files(found, info)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(text)}\n")
            archive.writestr(_entry(name), text)
        archive.writestr(_entry(f"{info}/RECORD"), f"{''.join(record)}{info}/RECORD,,\n")
    return wheel


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, ALWAYS)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _files(found: metadata.Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    for file in found.files or ():
        name = file.as_posix()
        inside = name.removeprefix(f"{info}/")
        ours = name.startswith("gpud/") and not name.endswith(".pyc")
        if ours or (inside != name and (inside in KEPT or inside.startswith("licenses/"))):
            yield name, file.read_binary()
