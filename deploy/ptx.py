"""Make and check the PTX of ``gpud/child/kernels`` with pinned NVIDIA tools.

The tools come from wheels named with their hashes in ``requirements-ptx.txt``. Each wheel is
downloaded by pip and two or three files are taken out of it, so that no CUDA toolkit is needed and
generations that would overwrite each other can lie side by side.
"""

import ctypes
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KERNELS = HERE.parent / "gpud" / "child" / "kernels"
REQUIREMENTS = HERE / "requirements-ptx.txt"

WANTED = re.compile(r"/(ptxas|libnvrtc(-builtins)?\.so\.[\d.]+)$")  # inside a wheel


class PtxError(Exception):
    """A tool could not be had, or refused its input; the text is the tool's own."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file of PTX asks for: the language's version, and the oldest GPU as a number."""

    version: str
    architecture: int

    @property
    def text(self) -> str:
        """The two lines at the top of the file."""
        return f".version {self.version}\n.target sm_{self.architecture}\n"


TENSOR = Header("7.0", 80)  # CUDA 11.0, the first with mma.m16n8k16 and cp.async
HEADERS = {"matmul_tensor": TENSOR, "matmul_types": TENSOR}
USUAL = Header("6.0", 50)  # CUDA 9 and Maxwell: older than any driver for WSL2


@dataclass(frozen=True, slots=True)
class Assembler:
    """One ptxas and the architectures it is asked for, as numbers: 86 is ``sm_86``."""

    wheel: str
    architectures: tuple[int, ...]


NVRTC_WHEEL = "nvidia_cuda_nvrtc_cu12-12.9.86"
ASSEMBLERS = (
    Assembler(
        "nvidia_cuda_nvcc_cu11-11.7.99",
        (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86),
    ),
    Assembler(
        "nvidia_cuda_nvcc_cu12-12.9.86",
        (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121),
    ),
    Assembler(
        "nvidia_cuda_nvcc-13.0.88",
        (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
    ),
)


PINNED = {
    "matmul_128": {
        80: "nvidia_cuda_nvcc_cu11-11.7.99",
        90: "nvidia_cuda_nvcc_cu12-12.9.86",
        120: "nvidia_cuda_nvcc_cu12-12.9.86",
    }
}
"""Kernels that are shipped as machine code too: architectures, and the assembler of each.

It is the oldest of ``ASSEMBLERS`` for each: drivers load what assemblers of their own age and
older ones have made.
"""


def sources() -> tuple[Path, ...]:
    """Every kernel source, by name; its PTX lies beside it."""
    return tuple(sorted(KERNELS.glob("*.cu")))


def digest() -> str:
    """The SHA-256 of all PTX in the order of the names, as a line."""
    content = b"".join(file.read_bytes() for file in sorted(KERNELS.glob("*.ptx")))
    return f"{hashlib.sha256(content).hexdigest()}\n"


def header(source: Path) -> Header:
    """The header of the PTX that a source is compiled to."""
    return HEADERS.get(source.stem, USUAL)


def install(folder: Path) -> Path:
    """Make sure that the pinned tools lie under ``folder``; the folder that holds them.

    It is named after the requirements, so that a changed pin is never answered by an old tool.
    Errors: ``PtxError`` with pip's own words.
    """
    target = folder / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheels, tools = Path(scratch) / "wheels", Path(scratch) / "tools"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet")
        choice = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(REQUIREMENTS))
        _run(*pip, *choice, "--dest", str(wheels))
        for wheel in sorted(wheels.glob("*.whl")):
            _unpack(wheel, tools / "-".join(wheel.name.split("-")[:2]))
        try:
            tools.rename(target)
        except OSError:  # somebody else finished first, with the same files
            if not target.is_dir():
                raise
    return target


def _unpack(wheel: Path, target: Path) -> None:
    """Take the wanted files of a wheel out of it, without its folders."""
    target.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if WANTED.search(member.filename):
                member.filename = Path(member.filename).name
                Path(archive.extract(member, target)).chmod(0o755)


class Compiler:
    """NVRTC, loaded from the tools: CUDA C in, PTX text out.

    Source: the NVRTC reference; its functions take an opaque program handle and give 0 or a code.
    """

    def __init__(self, tools: Path) -> None:
        folder = tools / NVRTC_WHEEL
        for name in ("libnvrtc-builtins.so.12.9", "libnvrtc.so.12"):
            try:  # the first one is looked up by its bare name from within the second
                self._nvrtc = ctypes.CDLL(str(folder / name))
            except OSError as error:
                raise PtxError(str(error)) from error

    def compile(self, source: Path) -> str:
        """The shipped PTX of one kernel source; no path of this machine enters it.

        Errors: ``PtxError`` with the compiler's log.
        """
        wanted = header(source)
        return lowered(source.name, self.translate(source, wanted.architecture), wanted)

    def translate(self, source: Path, architecture: int) -> str:
        """Give PTX for an architecture (86 is ``compute_86``) as the compiler words it.

        Errors: ``PtxError`` with the compiler's log.
        """
        program = ctypes.c_void_p()
        included = sorted(KERNELS.glob("*.cuh"))
        self._check(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.read_bytes(),
            source.name.encode(),
            len(included),
            _strings(file.read_bytes() for file in included),
            _strings(file.name.encode() for file in included),
        )
        try:
            options = _strings((b"--gpu-architecture=compute_%d" % architecture, b"--std=c++17"))
            if self._nvrtc.nvrtcCompileProgram(program, len(options), options):
                raise PtxError(self._text(program, "nvrtcGetProgramLog"))
            return self._text(program, "nvrtcGetPTX")
        finally:
            self._check("nvrtcDestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, function: str) -> str:
        size = ctypes.c_size_t()
        self._check(f"{function}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(function, program, buffer)
        return buffer.value.decode("ascii")

    def _check(self, function: str, *arguments: object) -> None:
        if code := getattr(self._nvrtc, function)(*arguments):
            raise PtxError(f"{function}: NVRTC error {code}")


def _strings(texts: Iterable[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """An array of C strings."""
    items = tuple(texts)
    return (ctypes.c_char_p * len(items))(*items)


def lowered(name: str, generated: str, wanted: Header = USUAL) -> str:
    """The generated PTX under the header that old drivers accept.

    Only the generator's comments and the version change: the kernels use no instruction newer than
    the header says, which the assemblers confirm.
    """
    found = re.match(
        rf"(?://[^\n]*\n|\s)*\.version \d+\.\d+\n\.target sm_{wanted.architecture}\n", generated
    )
    if not found:
        raise PtxError(f"{name}: unexpected PTX header: {generated[:200]!r}")
    body = generated[found.end() :].rstrip("\n\0")
    provenance = f"// Made from {name} by deploy/build-ptx (NVRTC 12.9.86). Do not edit.\n\n"
    return f"{provenance}{wanted.text}{body}\n"


def assemble(tools: Path, ptx: Path) -> Iterator[str]:
    """Run every assembler over every architecture it knows that is new enough; a line for each.

    Errors: ``PtxError`` with the first refusal.
    """
    oldest = header(ptx).architecture
    for assembler in ASSEMBLERS:
        ptxas = tools / assembler.wheel / "ptxas"
        numbers = [number for number in assembler.architectures if number >= oldest]
        for number in numbers:
            _run(str(ptxas), f"--gpu-name=sm_{number}", "--output-file=/dev/null", str(ptx))
        yield f"{ptx.name}: {assembler.wheel}: sm_{numbers[0]} to sm_{numbers[-1]}"


def pinned(tools: Path, source: Path, text: str) -> Iterator[tuple[Path, bytes]]:
    """Yield the machine code of a kernel source from its PTX, with the file of each.

    Errors: ``PtxError`` with the assembler's words.
    """
    for number, wheel in PINNED.get(source.stem, {}).items():
        target = source.with_suffix(f".sm_{number}.cubin")
        with tempfile.TemporaryDirectory() as scratch:
            ptx, made = Path(scratch) / "in.ptx", Path(scratch) / "out.cubin"
            ptx.write_text(text, encoding="ascii")
            _run(str(tools / wheel / "ptxas"), f"--gpu-name=sm_{number}", "-o", str(made), str(ptx))
            yield target, made.read_bytes()


def _run(*command: str) -> None:
    """Run a tool to its end."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise PtxError(f"{' '.join(command)}\n{result.stdout}{result.stderr}".rstrip())
