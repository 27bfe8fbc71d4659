"""Build the stand-in driver libraries and the C reference loop from the sources beside this file.

Compiled objects are kept in a per-user temporary folder under a hash of what went into them, so
a test pays for a compilation once and for a file copy after that.
"""

import hashlib
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path(__file__).parent
ERRORS = SOURCES / "cuda_errors.def"
KERNELS = SOURCES.parents[1] / "gpud" / "child" / "kernels"
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
C = ("cc", "-std=gnu11", *FLAGS)
CXX = ("c++", "-std=gnu++17", *FLAGS, "-fno-strict-aliasing", "-Wno-unknown-pragmas")
SHARED = ("-shared", "-fPIC", "-fvisibility=hidden")
EXPORTED = re.compile(r"^EXPORT (?:NUMBER\(|WIDE\(|LIST\(|[\w *]*?)(\w+)[(,]", re.MULTILINE)
ERROR = re.compile(r"^ERROR\((\d+), (\w+),", re.MULTILINE)


class BuildError(Exception):
    """The compiler refused, or a function to leave out does not exist; the text says which."""


def build_libcuda(directory: Path, script: str = "", without: Iterable[str] = ()) -> Path:
    """Put a stand-in ``libcuda.so.1`` and its script into ``directory``.

    ``script`` is the text described in ``script.h`` and ``cuda_settings.c``; ``without`` names
    functions that the library shall not export, as an older driver would not.
    Errors: ``BuildError``.
    """
    sources = [*sorted(SOURCES.glob("cuda_*.c")), SOURCES / "libcuda.c", SOURCES / "script.c"]
    return _library(directory, "libcuda.so.1", sources, script, without)


def build_libnvml(directory: Path, script: str = "", without: Iterable[str] = ()) -> Path:
    """Put a stand-in ``libnvidia-ml.so.1`` and its script into ``directory``.

    Arguments and errors are those of ``build_libcuda``; the keys are in ``nvml_settings.c``.
    """
    sources = [*sorted(SOURCES.glob("nvml_*.c")), SOURCES / "libnvidia_ml.c", SOURCES / "script.c"]
    return _library(directory, "libnvidia-ml.so.1", sources, script, without)


def build_submit_loop(directory: Path) -> Path:
    """Put the program ``submit_loop`` into ``directory``; its source says what it prints."""
    built = _compiled("submit_loop", [SOURCES / "submit_loop.c"], C, ("-ldl",))
    return _place(built.read_bytes(), directory / "submit_loop")


def build_virtual_clock(directory: Path) -> Path:
    """Put ``virtual_clock.so``, to be preloaded, into ``directory``; its source says what it is."""
    options = (*SHARED, "-fno-builtin")
    built = _compiled("virtual_clock.so", [SOURCES / "virtual_clock.c"], C, options)
    return _place(built.read_bytes(), directory / "virtual_clock.so")


def build_kernels_on_host(directory: Path) -> Path:
    """Put the CUDA kernels, compiled for the CPU, into ``directory`` as a shared library."""
    options = (*SHARED, "-I", str(SOURCES), "-I", str(KERNELS))
    source, included = [SOURCES / "kernels_on_host.cpp"], sorted(KERNELS.glob("*.cu*"))
    included.append(SOURCES / "instructions.cuh")
    built = _compiled("kernels_on_host.so", source, CXX, options, included)
    return _place(built.read_bytes(), directory / "kernels_on_host.so")


def rewrite_script(library: Path, script: str) -> None:
    """Replace the script of a built library in one step: the next process that loads it obeys."""
    target = library.with_name(library.name + ".script")
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
        os.fchmod(descriptor, 0o644)  # an agent under another user reads it too
    Path(temporary).replace(target)


def _library(
    directory: Path, soname: str, sources: list[Path], script: str, without: Iterable[str]
) -> Path:
    """Build a shared library that exports everything its sources mark, less ``without``."""
    exported = {name for source in sources for name in EXPORTED.findall(source.read_text())}
    hidden = sorted(set(without))
    if unknown := sorted(set(hidden) - exported):
        message = f"{soname} has no function {', '.join(unknown)}"
        raise BuildError(message)
    options = (*SHARED, f"-Wl,-soname,{soname}", "-lm")
    content = _compiled(soname, sources, C, options).read_bytes()
    for name in map(str.encode, hidden):  # no lookup finds a symbol by another name
        content = content.replace(b"\0%b\0" % name, b"\0_%b\0" % name[1:])
    library = _place(content, directory / soname)
    rewrite_script(library, script)
    return library


def _compiled(
    name: str,
    sources: list[Path],
    compiler: tuple[str, ...],
    options: tuple[str, ...],
    included: Iterable[Path] = (),
) -> Path:
    """Compile sources into the cache, unless the same input and options are there already."""
    digest = hashlib.sha256(repr((name, compiler, options)).encode())
    for file in (*sources, *included, *sorted(SOURCES.glob("*.h")), ERRORS):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    target = _cache() / f"{digest.hexdigest()[:32]}.{name}"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
        output = Path(scratch) / name
        command = [*compiler, "-o", str(output), *map(str, sources), *options]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise BuildError(result.stderr)
        output.replace(target)  # whoever comes second replaces it with the same bytes
    return target


def _place(content: bytes, target: Path) -> Path:
    """Write a program to its place in one step: a process that has the old one mapped keeps it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, 0o755)
    return Path(temporary).replace(target)


def _cache() -> Path:
    """The folder of compiled objects: ours alone, since what lies in it is loaded as code."""
    folder = Path(tempfile.gettempdir()) / f"gpud-standins-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    results = folder.lstat()
    if (
        not stat.S_ISDIR(results.st_mode)
        or results.st_uid != os.getuid()
        or results.st_mode & 0o022
    ):
        message = f"{folder} must be a folder that only its owner can write"
        raise BuildError(message)
    return folder
