"""Build what deploy/gpu-check builds: the C program, and its kernels for the CPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from deploy.gpu_check.toolchain import HERE, build_program
from tests.standins.build import CXX, SHARED, SOURCES, C, _cache, _compiled, _place

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted(HERE.glob("*.h"))
KERNELS = ROOT / "gpud" / "child" / "kernels"
SHAPE = re.compile(
    r'\{"ref_", "(?P<item>\w+)", "(?P<name>\w+)", (?P<x>\d+), (?P<y>\d+), (?P<per_sm>\d+), '
    r"(?P<block_x>\d+), (?P<block_y>\d+),"
)

COMPILER = """\
#!/bin/sh
# cc, which compiles the same sources with the same options once.
for word; do
  [ "$before" != -o ] || output=$word
  case $word in *.c) sources=${word%/*} ;; esac
  before=$word
done
[ "$output" ] && [ "$sources" ] || exec /usr/bin/cc "$@"
options=$(printf '%s\\n' "$@" | grep -vxF -- "$output")
kept=${0%/*}/$({ echo "$options"; cat "$sources"/*.[ch]; } | sha256sum | cut -c1-32)
if ! [ -x "$kept" ]; then
  /usr/bin/cc "$@" || exit
  cp "$output" "$kept.$$" && mv "$kept.$$" "$kept"
else
  cp "$kept" "$output"
fi
"""


def path() -> str:
    """Give a PATH of the system alone, whose compiler is quick the second time."""
    compiler = _place(COMPILER.encode(), _cache() / "compiler/cc")
    return f"{compiler.parent}:/usr/bin:/bin"


def host_kernels() -> ctypes.CDLL:
    """Give the reference's kernels as a library with ``host_run``."""
    source = Path(__file__).with_name("kernels_on_host.cpp")
    options = (*SHARED, "-I", str(SOURCES), "-I", str(HERE))
    included = [HERE / "kernels.cu", SOURCES / "instructions.cuh"]
    return ctypes.CDLL(str(_compiled("gpu_check_kernels.so", [source], CXX, options, included)))


def host_cublas() -> Path:
    """Give a libcublas that multiplies on the CPU; its source says what it can."""
    source = Path(__file__).with_name("cublas_on_host.c")
    return _compiled("libcublas.so", [source], C, ("-shared", "-fPIC", "-ldl"))


def shapes() -> dict[str, re.Match[str]]:
    """List the launch shapes that the reference program uses, from its table."""
    text = (HERE / "variants.c").read_text()
    return {result["name"]: result for result in SHAPE.finditer(text)}


def program(folder: Path) -> Path:
    """Build the reference program as the command does."""
    folder.mkdir(parents=True, exist_ok=True)
    return build_program(folder)
