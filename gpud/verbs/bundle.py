"""The installer in one script, which names the packages it installs by their hashes.

A person's files may change between the moment root is asked for and the moment root reads them. So
root reads this script once, compares its hash with the one on its own command line, and runs what
it has read. The script holds the modules of gpud.install and the hash of every wheel.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from importlib import metadata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

LOADER: Final = (
    "import hashlib, sys; text = open(sys.argv[1], 'rb').read();"
    " hashlib.sha256(text).hexdigest() == sys.argv[2] or sys.exit('error: the installer changed');"
    " exec(compile(text, 'gpud-install', 'exec'), {'words': sys.argv[3:]})"
)
"""What root's Python is given: it runs the script that it has read, never the file."""
SCRIPT: Final = '''\
"""Installer of gpud, with the hashes of what it installs. Made by `gpud install`."""
import importlib.util
import json
import sys

MODULES = json.loads({modules!r})
WHEELS = json.loads({wheels!r})


class Importer:
    find_spec = staticmethod(
        lambda name, path=None, target=None: importlib.util.spec_from_loader(
            name, Importer, is_package=name in ("gpud", "gpud.install")
        )
        if name in MODULES
        else None
    )
    get_source = staticmethod(MODULES.get)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        exec(compile(MODULES[module.__name__], module.__name__, "exec"), module.__dict__)


sys.meta_path.insert(0, Importer)
from gpud.install.__main__ import from_wheels

from_wheels(words, WHEELS)
'''


def script(modules: Mapping[str, bytes], wheels: Mapping[Path, str]) -> bytes:
    """Return the script for some modules, by path, and wheels with their hashes."""
    sources = {_name(path): text.decode() for path, text in modules.items()}
    digests = {str(path): digest for path, digest in wheels.items()}
    return SCRIPT.format(modules=json.dumps(sources), wheels=json.dumps(digests)).encode()


def line(python: Path, path: Path, text: bytes, words: Sequence[str]) -> list[str]:
    """Return the command line for root that runs a script of this content, and no other."""
    return [
        str(python),
        "-I",
        "-B",
        "-c",
        LOADER,
        str(path),
        hashlib.sha256(text).hexdigest(),
        *words,
    ]


def _name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


ALWAYS: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same files are the same wheel."""
WHEEL_FILES: Final = ("METADATA", "WHEEL", "entry_points.txt")
"""Files of the dist-info that a wheel has; the others are the installer's."""


def repacked(folder: Path) -> Path:
    """Write the wheel into a folder. Errors: ``PackageNotFoundError``, ``OSError``."""
    distribution = metadata.distribution("gpud")
    info = f"gpud-{distribution.version}.dist-info"
    wheel = folder / f"gpud-{distribution.version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in sorted(_files(distribution, info)):
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


def _files(distribution: metadata.Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    for file in distribution.files or ():
        name = file.as_posix()
        inside = name.removeprefix(f"{info}/")
        ours = name.startswith("gpud/") and not name.endswith(".pyc")
        if ours or (inside != name and (inside in WHEEL_FILES or inside.startswith("licenses/"))):
            yield name, file.read_binary()
