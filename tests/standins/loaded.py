"""Call a stand-in libcuda.so.1 from this process, or from a fresh one."""

import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from tests.standins.build import build_submit_loop, build_virtual_clock

COMPILED = "0 20"
"""Virtual nanoseconds of a call and of a reading of the clock, in C; see ``virtual_clock.c``."""

NAMES = (
    "gpud_empty",
    "gpud_triad",
    "gpud_nbody",
    *(f"gpud_matmul{kind}" for kind in ("", "_16", "_tensor")),
)
PTX = ".version 6.0\n.target sm_50\n.address_size 64\n" + "".join(
    f".visible .entry {name}()\n{{ ret; }}\n" for name in NAMES
)

Array = np.ndarray[Any, np.dtype[Any]]


class Cuda:
    """One loaded stand-in with a current context, and the few calls the tests repeat."""

    def __init__(self, path: Path) -> None:
        loader = ctypes.CDLL(None)
        loader.dlopen.restype = ctypes.c_void_p
        handle = loader.dlopen(str(path).encode(), 2)  # RTLD_NOW
        assert handle, path
        self.lib = ctypes.CDLL(str(path), handle=handle)
        self.handle = ctypes.c_void_p(handle)
        self.context = ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        self.functions: dict[str, ctypes.c_void_p] = {}

    def close(self) -> None:
        ctypes.CDLL(None).dlclose(self.handle)

    def call(self, name: str, *args: object) -> None:
        code = getattr(self.lib, name)(*args)
        assert code == 0, f"{name}: {code}"

    def setup(self, gpu: int = 0) -> "Cuda":
        """Make that GPU's context current, with a stream and every kernel of its own."""
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), gpu)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)
        module = self.load(PTX)
        for name in NAMES:
            function = self.functions[name] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return self

    def load(self, ptx: str) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self.call("cuModuleLoadDataEx", ctypes.byref(module), ptx.encode(), 0, None, None)
        return module

    def alloc(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def put(self, array: Array) -> ctypes.c_uint64:
        address = self.alloc(array.nbytes)
        self.call("cuMemcpyHtoD_v2", address, array.ctypes, ctypes.c_size_t(array.nbytes))
        return address

    def get(self, address: int, count: int) -> Array:
        array = np.empty(count, dtype=np.float32)
        size = ctypes.c_size_t(array.nbytes)
        self.call("cuMemcpyDtoH_v2", array.ctypes, ctypes.c_uint64(address), size)
        return array

    def launch(
        self, name: str, grid: tuple[int, int], block: tuple[int, int], *params: object
    ) -> int:
        values = [ctypes.cast(ctypes.byref(p), ctypes.c_void_p) for p in params]  # type: ignore[arg-type]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*values)
        shape = (*grid, 1, *block, 1, 0)
        launch = self.lib.cuLaunchKernel
        return int(launch(self.functions[name], *shape, self.stream, pointers, None))

    def triad(self, n4: int, *arrays: ctypes.c_uint64) -> None:
        params = (*arrays, ctypes.c_float(3.0), ctypes.c_uint(n4))
        assert self.launch("gpud_triad", (2, 1), (256, 1), *params) == 0

    def pinned(self, size: int) -> ctypes.c_void_p:
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 0)
        return address

    def event(self, stream: object) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", event, stream)
        return event


def virtual_time(folder: Path, clock: str) -> dict[str, str]:
    """Give an environment in which time is what ``clock`` and the stand-in say, on any machine."""
    preloaded = str(build_virtual_clock(folder))
    return os.environ | {"LD_PRELOAD": preloaded, "VIRTUAL_CLOCK": clock}


def loop(library: Path, *arguments: object) -> tuple[int, ...]:
    """Give what ``submit_loop.c`` prints, in virtual time.

    Median, clock pair, 10th, 90th and 99th percentile in nanoseconds.
    """
    command = list(map(str, (build_submit_loop(library.parent), library, *arguments)))
    environment = virtual_time(library.parent, COMPILED)
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return tuple(map(int, ended.stdout.split()))


def run(
    library: Path, code: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python statements in a fresh process that has the library as ``lib``."""
    program = f"import ctypes\nlib = ctypes.CDLL({str(library)!r})\n{textwrap.dedent(code)}"
    return subprocess.run(
        [sys.executable, "-I", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
