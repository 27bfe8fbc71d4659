"""The installer in one script, which names the packages it installs by their hashes.

A person's files may change between the moment root is asked for and the moment root reads them. So
root reads this script once, compares its hash with the one on its own command line, and runs what
it has read. The script holds the modules of gpud.install and the hash of every wheel.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
from gpud.install.bundled import main

main(words, WHEELS)
'''


def script(modules: Mapping[str, bytes], wheels: Mapping[Path, str]) -> bytes:
    """Return the script for some modules, by path, and wheels with their hashes."""
    sources = {_name(path): text.decode() for path, text in modules.items()}
    found = {str(path): digest for path, digest in wheels.items()}
    return SCRIPT.format(modules=json.dumps(sources), wheels=json.dumps(found)).encode()


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
