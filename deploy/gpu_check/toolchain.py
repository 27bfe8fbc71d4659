"""Find the compilers, and build the reference program and its kernels for the GPU at hand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .processes import Refused, finished

HERE = Path(__file__).parent
SOURCES = tuple(sorted(HERE.glob("*.c")))
KERNELS = HERE / "kernels.cu"
INSTRUCTIONS = HERE.parents[1] / "gpud" / "child" / "kernels"  # instructions.cuh
C_OPTIONS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-Wshadow")
NO_NVCC = (
    "no nvcc: it compiles the kernels that gpud's are held against. Install NVIDIA's CUDA toolkit "
    "(the package cuda-toolkit from NVIDIA's repository, or nvidia-cuda-toolkit of the "
    "distribution; the toolkit alone, no driver) and put its bin folder on PATH, or name the "
    "compiler with --nvcc. Without it, --module takes kernels that are compiled already."
)
COMPILERS = ("cc", "gcc", "clang")
NO_CC = "no C compiler (cc, gcc or clang): sudo apt-get install gcc libc6-dev"
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
RESOURCES = re.compile(r"Used (\d+) registers|(\d+) bytes spill stores")


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled kernels. ``resources``: registers and spilled bytes by kernel, as ptxas says."""

    module: Path
    nvcc: str  # the version line of the compiler
    resources: dict[str, dict[str, int]]


def nvcc_path(given: str | None) -> str:
    """Find nvcc: the one that is named, on PATH, or where the toolkit puts it.

    Errors: ``Refused`` with what to install.
    """
    if given:
        if shutil.which(given) is None:
            raise Refused(f"--nvcc {given}: there is no such program")
        return given
    if found := tool("nvcc"):
        return found
    raise Refused(NO_NVCC)


def tool(name: str) -> str | None:
    """Find a program of the toolkit: on PATH, or where the toolkit puts it."""
    return shutil.which(name) or shutil.which(f"{_toolkit()}/bin/{name}")


def _toolkit() -> Path:
    """Give the toolkit's folder: the one that CUDA_HOME names, else where the packages put it."""
    return Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")


def build_program(folder: Path) -> Path:
    """Compile the C sources. ``Errors: Refused`` with the compiler's words."""
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise Refused(NO_CC)
    program = folder / "reference"
    _run(compiler, *C_OPTIONS, "-o", str(program), *map(str, SOURCES), "-ldl", "-lm")
    return program


def build_kernels(folder: Path, nvcc: str, capability: str) -> Kernels:
    """Compile the kernels into machine code of one compute capability, "9.0".

    Errors: ``Refused`` with the compiler's words; also where it is too old or too new for the GPU.
    """
    module = folder / "kernels.cubin"
    target = f"-arch=sm_{capability.replace('.', '')}"
    options = ("-cubin", target, "-O3", "-std=c++17", "-Xptxas=-v", f"-I{INSTRUCTIONS}")
    said = _run(nvcc, *options, "-o", str(module), str(KERNELS))
    version = _run(nvcc, "--version").strip().splitlines()
    return Kernels(module, version[-2] if len(version) > 1 else "unknown", resources(said))


def resources(said: str) -> dict[str, dict[str, int]]:
    """Read what ``ptxas -v`` says of each kernel."""
    found: dict[str, dict[str, int]] = {}
    kernel: dict[str, int] = {}
    for line in said.splitlines():
        if entry := ENTRY.search(line):
            kernel = found.setdefault(entry[1], {})
        for registers, spilled in RESOURCES.findall(line):
            kernel["registers" if registers else "spilled_bytes"] = int(registers or spilled)
    return found


def cublas_path(given: str | None) -> str | None:
    """Find a cuBLAS: named, of the toolkit, of a Python package; None where there is none."""
    if given:
        return None if given == "none" else given
    folders = [_toolkit() / "lib64"]
    folders += _packaged()
    for folder in folders:
        for file in sorted(folder.glob("libcublas.so.*"), key=lambda found: len(found.name)):
            return str(file)
    listed = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin") or "ldconfig"
    try:
        cache = subprocess.run([listed, "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    known = re.search(r"libcublas\.so\.\d+ .*=> (\S+)", cache)
    return known[1] if known else None


def _packaged() -> list[Path]:
    places = [Path(entry) / "nvidia" for entry in sys.path if entry]
    return [folder for place in places for folder in sorted(place.glob("*/lib"), reverse=True)]


def _run(*command: str) -> str:
    """Run a compiler; what it said on both channels."""
    ended = finished(command, "")
    said = ended.stdout + ended.stderr
    if ended.returncode:
        raise Refused(f"{' '.join(command)}\n{said.strip()[-4000:]}")
    return said
