"""The CPU reference behind the same protocol: the kernels in numpy, device memory in host memory.

It is what a machine without a GPU is measured by, under names of its own, and what the contract
suite holds the CUDA backend against. It never pretends to be a GPU: ``device`` is None.
"""

from __future__ import annotations

import ctypes
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gpud.child.device import Buffer, Call, HostBuffer, Kernel, inside, shared
from gpud.child.libc import LAUNCH_PROTOTYPE, null_call
from gpud.core.errors import ProbeError
from gpud.core.sample import Failure, Reason

try:
    import numpy as np
except ImportError as error:  # a distribution's Python replaced under the environment
    _WHY: str | None = str(error)
else:
    _WHY = None

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpud.child.device import Argument
    from gpud.core.sample import Condition

    Array = NDArray[np.float32]

LIMIT_BYTES = 1 << 30
"""More than any probe here needs: an honest refusal instead of a machine that swaps."""
_LAST_CACHE = 32 << 20


class CpuGpu:
    """The protocol of ``device.Gpu`` on the CPU. Errors: ``ProbeError`` as everywhere."""

    def __init__(self) -> None:
        if _WHY is not None:
            raise ProbeError(
                Failure(
                    Reason.DEPENDENCY_MISSING,
                    f"numpy does not load: {_WHY}",
                    advice="deploy/run sets the environment up again",
                )
            )
        self._memory: dict[int, ctypes.Array[ctypes.c_ubyte]] = {}
        self._moments = {True: 0.0, False: 0.0}
        self._wait = Call("wait", lambda: 0, null_call((ctypes.c_void_p,), (None,)))

    @property
    def device(self) -> None:
        """No GPU."""
        return

    @property
    def sm_count(self) -> int:
        """Cores this process may use."""
        return len(os.sched_getaffinity(0))

    @property
    def l2_bytes(self) -> int:
        """A last-level cache of usual size; the CPU does not tell this to everybody."""
        return _LAST_CACHE

    @property
    def busy_s(self) -> float:
        """Always 0: no GPU time is used."""
        return 0.0

    @property
    def vram_peak_bytes(self) -> int:
        """Always 0: no GPU memory is used."""
        return 0

    @property
    def pinned_peak_bytes(self) -> int:
        """Always 0: nothing is page-locked."""
        return 0

    @property
    def wait(self) -> Call:
        """Nothing to wait for: every call here is done when it returns."""
        return self._wait

    def memory(self) -> tuple[int, int]:
        """Give what is left of the limit, and the limit."""
        return LIMIT_BYTES - sum(map(len, self._memory.values())), LIMIT_BYTES

    def alloc(self, size: int) -> Buffer:
        """Take host memory. ``Errors: ProbeError`` (out_of_memory) beyond the limit."""
        if size > self.memory()[0]:
            raise ProbeError(Failure(Reason.OUT_OF_MEMORY, f"{size} bytes are not to be had"))
        memory = (ctypes.c_ubyte * size)()
        address = ctypes.addressof(memory)
        self._memory[address] = memory
        return Buffer(address, size)

    def free(self, buffer: Buffer) -> None:
        """Give memory back."""
        del self._memory[buffer.address]

    def host(self, size: int, *, pinned: bool = True) -> HostBuffer:
        """Take host memory; nothing is pinned here."""
        del pinned
        memory = (ctypes.c_ubyte * size)()
        self._memory[ctypes.addressof(memory)] = memory
        return HostBuffer(ctypes.addressof(memory), memoryview(memory).cast("B"), pinned=False)

    def upload(self, buffer: Buffer, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes in."""
        content = bytes(data)
        inside(buffer, offset, len(content))
        self._array(buffer, np.uint8)[offset : offset + len(content)] = np.frombuffer(
            content, np.uint8
        )

    def download(self, buffer: Buffer, size: int | None = None, offset: int = 0) -> bytes:
        """Copy bytes out."""
        size = buffer.size - offset if size is None else size
        inside(buffer, offset, size)
        return bytes(self._array(buffer, np.uint8)[offset : offset + size])

    def fill(self, buffer: Buffer, word: int) -> None:
        """Set every 32-bit word."""
        self._array(buffer, np.uint32)[:] = word

    def kernel(self, name: str) -> Kernel:
        """Give the numpy twin of a kernel."""
        if name not in KERNELS:
            raise ProbeError(Failure(Reason.INTERNAL, f"there is no kernel {name}"))
        return Kernel(name, KERNELS[name])

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        """Prebuild a call of the twin; the shape of the grid decides nothing here."""
        del grid, block
        ready = [
            self._array(value, np.float32) if isinstance(value, Buffer) else value
            for value in arguments
        ]
        twin: Callable[..., int] = kernel.handle  # type: ignore[assignment]  # ours, by name
        empty = [kind() for kind in LAUNCH_PROTOTYPE]
        return Call(kernel.name, partial(twin, *ready), null_call(LAUNCH_PROTOTYPE, empty))

    def graph(self, call: Call, count: int) -> Call:
        """Prebuild ``count`` calls in a row."""

        def all_of_them() -> int:
            return next(filter(None, (call.real() for _ in range(count))), 0)

        return Call("graph", all_of_them, null_call((ctypes.c_void_p,) * 2, (None, None)))

    def copy_in(
        self, buffer: Buffer, host: HostBuffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy."""
        del lane
        return self._copy(buffer.address, host.address, shared(buffer, host, size))

    def copy_out(
        self, host: HostBuffer, buffer: Buffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy."""
        del lane
        return self._copy(host.address, buffer.address, shared(buffer, host, size))

    def copy_device(self, to: Buffer, source: Buffer) -> Call:
        """Prebuild a copy."""
        inside(to, 0, source.size)
        return self._copy(to.address, source.address, source.size)

    def record(self, *, first: bool) -> Call:
        """Prebuild a look at the clock."""

        def look() -> int:
            self._moments[first] = time.perf_counter()
            return 0

        return Call("record", look, null_call((ctypes.c_void_p,) * 2, (None, None)))

    def between(self) -> float:
        """Give the time between the two looks."""
        return self._moments[False] - self._moments[True]

    def check(self, code: int, call: Call) -> None:
        """Raise for a code that is not 0; no twin gives one."""
        if code:
            raise ProbeError(Failure(Reason.INTERNAL, f"{call.name} gave {code}"))

    def about(self, *calls: Call) -> None:
        """Nothing to note: no twin hangs."""

    def timed(self, call: Call, repeats: int = 1) -> float:
        """Time ``repeats`` calls. Units: seconds of wall time, monotonic."""
        begun = time.perf_counter()
        for _ in range(repeats):
            self.check(call.real(), call)
        return time.perf_counter() - begun

    def together(self, left: Call, right: Call, repeats: int = 1) -> float:
        """Do both in turn: nothing happens at once here."""
        return self.timed(left, repeats) + self.timed(right, repeats)

    def account(self, seconds: float) -> None:
        """Nothing to add: this is not a GPU."""

    def conditions(self) -> dict[str, Condition]:
        """Give what makes this CPU's figures what they are."""
        return {"numpy": np.__version__, "cpu_count": self.sm_count}

    @property
    def release_errors(self) -> dict[str, str]:
        """Nothing here is refused."""
        return {}

    def close(self) -> None:
        """Give everything back."""
        self._memory.clear()

    def _array(self, buffer: Buffer, kind: Any) -> Any:  # noqa: ANN401  # a dtype, an ndarray
        return np.frombuffer(memoryview(self._memory[buffer.address]).cast("B"), kind)

    def _copy(self, to: int, source: int, size: int) -> Call:
        def copy() -> int:
            ctypes.memmove(to, source, size)
            return 0

        return Call("copy", copy, null_call((ctypes.c_void_p,), (None,)))


def _empty() -> int:
    return 0


def _count(counter: Array) -> int:
    counter.view(np.uint32)[0] += 1
    return 0


def _triad(a: Array, b: Array, c: Array, s: float, n4: int) -> int:
    a[: 4 * n4] = b[: 4 * n4] + np.float32(s) * c[: 4 * n4]
    return 0


def _nbody(pos: Array, acc: Array, n: int, eps2: float) -> int:
    bodies = pos[: 4 * n].reshape(n, 4)
    out = acc[: 4 * n].reshape(n, 4)
    for first in range(0, n, 256):
        apart = bodies[None, :, :3] - bodies[first : first + 256, None, :3]
        squared = np.einsum("ijk,ijk->ij", apart, apart) + np.float32(eps2)
        weight = bodies[None, :, 3] / (squared * np.sqrt(squared))
        out[first : first + 256, :3] = np.einsum("ij,ijk->ik", weight, apart)
        out[first : first + 256, 3] = 0
    return 0


def _matmul(a: Array, b: Array, c: Array, n: int) -> int:
    size = n * n
    np.matmul(a[:size].reshape(n, n), b[:size].reshape(n, n), out=c[:size].reshape(n, n))
    return 0


def _matmul_tensor(a: Array, b: Array, c: Array, n: int) -> int:
    size = n * n
    left, right = (each.view(np.float16)[:size].reshape(n, n).astype(np.float32) for each in (a, b))
    np.matmul(left, right, out=c[:size].reshape(n, n))
    return 0


KERNELS: dict[str, Callable[..., int]] = {
    "gpud_empty": _empty,
    "gpud_count": _count,
    "gpud_triad": _triad,
    "gpud_nbody": _nbody,
    "gpud_matmul": _matmul,
    "gpud_matmul_16": _matmul,
    "gpud_matmul_128": _matmul,
    "gpud_matmul_tensor": _matmul_tensor,
}
