"""One GPU through the CUDA driver: memory, kernels, prebuilt calls, and GPU time between events.

One thread, one context for all runs of a process, and two streams at most in each of them. A run
that copies to a second GPU has a context there as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from functools import partial

from gpud.child.cuda import Driver
from gpud.child.cuda_api import FUNCTIONS, GRAPH, OPTIONAL, POINTER, SIZE, KernelNode, null_call
from gpud.child.device import Buffer, Call, HostBuffer, Kernel, inside, shared, vram_short
from gpud.child.modules import Modules
from gpud.core import progress
from gpud.core.advice import Situation
from gpud.core.errors import ProbeError
from gpud.core.record import replace
from gpud.core.sample import Device, Failure, Job, Reason, to_leave_free

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpud.child.cuda_peer import Peer
    from gpud.child.device import Argument
    from gpud.child.progress import Progress
    from gpud.core.sample import Condition

SPIN, BLOCKING_SYNC = 1, 4  # CU_CTX_SCHED_*
EVENT_SPIN, EVENT_BLOCKING_SYNC = 0, 1  # CU_EVENT_*; the context's flag does not reach events
NOT_READY = 600  # of a query: work is still going on
LONGEST_MS = 6e5
"""Between two events of a run, none of which may last so long: Windows resets a GPU after 2 s."""


class PrimaryContext:
    """The primary context of one GPU and the kernels loaded into it, which several runs share."""

    def __init__(self, driver: Driver, device: Device, *, spin: bool) -> None:
        """Retain it. After this, ``close`` must be called. Errors: ``ProbeError``."""
        self.driver, self.device = driver, device
        self.modules = Modules(driver)
        self.low_clock_s = 0.0  # GPU time for which its clock has been waited for
        self.opened_s: float | None = None  # until the first run has ended
        self.ordinal = driver.value("cuDeviceGet", ctypes.c_int, device.index)
        begun = time.monotonic()
        driver("cuDevicePrimaryCtxSetFlags_v2", self.ordinal, SPIN if spin else BLOCKING_SYNC)
        self.handle = driver.created("cuDevicePrimaryCtxRetain", self.ordinal)
        self.opened_s = time.monotonic() - begun

    def wait_by(self, *, spin: bool) -> None:
        """Change how a wait for a stream waits: drivers since CUDA 11 let a context in use."""
        flags = SPIN if spin else BLOCKING_SYNC
        self.driver.code("cuDevicePrimaryCtxSetFlags_v2", self.ordinal, flags)

    def close(self) -> dict[str, str]:
        """Give everything back. Returns what was refused, by function."""
        handles = {
            "cuModuleUnload": self.modules.handles,
            "cuDevicePrimaryCtxRelease_v2": [self.ordinal],
        }
        return self.driver.give_back(handles)


class Gpu:
    """A GPU for one run; what is taken of it is given back by ``close``, all but the context.

    ``busy_s`` is GPU time in seconds: between events, and what probes add that no event saw.
    ``wait`` waits for the first lane, ``first`` and ``last`` record the events around a region; all
    are prebuilt.
    ``fresh``: nothing has run in the context before. ``left_out``: as ``Job`` has it. ``peer``: the
    second GPU of a run that has one.
    ``release_errors`` holds what was refused at the end, by function.
    Errors: every method raises ``ProbeError`` with the function and the code that refused.
    """

    def __init__(self, context: PrimaryContext, *, spin: bool, left_out: Mapping[str, str]) -> None:
        """``spin``: wait actively, for latency; else give up the core."""
        self._driver = context.driver
        self.context, self.modules = context, context.modules
        self.device = device = context.device
        self.sm_count, self.l2_bytes = device.sm_count, device.l2_bytes
        self.left_out = left_out
        self.peer: Peer | None = None
        self.fresh = context.opened_s is not None
        self.busy_s = 0.0
        self.vram_peak_bytes = self.pinned_peak_bytes = 0  # the most that was held at once
        self.release_errors: dict[str, str] = {}
        self._buffers: dict[int, int] = {}  # bytes by address
        self._pinned: list[ctypes.c_void_p] = []
        self._pageable: list[ctypes.Array[ctypes.c_ubyte]] = []
        self._events: list[ctypes.c_void_p] = []
        self._lanes: list[ctypes.c_void_p] = []
        self._graphs: list[ctypes.c_void_p] = []
        self._executables: list[ctypes.c_void_p] = []
        self._free_bytes, self._stays_free_bytes = math.inf, -math.inf
        self._spin = spin
        self.modules.load_s = 0.0

    def start(self) -> None:
        """Make the context current and take the first stream and the events."""
        self._driver("cuCtxSetCurrent", self.context.handle)
        self._lanes.append(self._driver.created("cuStreamCreate", 0))
        # The first and the last of a region, the meeting of two lanes; two for the default stream.
        flags = EVENT_SPIN if self._spin else EVENT_BLOCKING_SYNC
        for _ in range(5):
            self._events.append(self._driver.created("cuEventCreate", flags))
        self.wait = self._call("cuStreamSynchronize", self._lanes[0])
        self.first, self.last = (
            self._call("cuEventRecord", event, self._lanes[0]) for event in self._events[:2]
        )

    def leave_free(self, job: Job) -> None:
        """Take no memory from now on of which too little is free, on the second GPU neither.

        What the driver does not tell holds nothing back. Errors: ``ProbeError`` (vram_short).
        """
        total_bytes = self.device.memory_total_bytes
        least_bytes, stays_bytes = to_leave_free(job.vram_free_min_bytes, total_bytes)
        with contextlib.suppress(ProbeError):
            self._free_bytes = self.memory()[0]
            self._stays_free_bytes = stays_bytes or -math.inf
        if self._free_bytes < least_bytes:
            raise vram_short(self._free_bytes, least_bytes)
        if self.peer is not None:
            self.peer.leave_free(job)

    def peak_hertz(self) -> float | None:
        """Give the highest clock of the multiprocessors by the driver's table, if it tells."""
        return self._driver.peak_hertz(self.device.index)

    def memory(self) -> tuple[int, int]:
        """Give free and total bytes; WDDM's free is not a promise."""
        free, total = SIZE(), SIZE()
        self._driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def alloc(self, size: int) -> Buffer:
        """Take plain device memory, never managed."""
        left_bytes = self._free_bytes - sum(self._buffers.values()) - size
        if left_bytes < self._stays_free_bytes:
            raise vram_short(left_bytes, self._stays_free_bytes)
        address = self._driver.value("cuMemAlloc_v2", POINTER, size)
        self._buffers[address] = size
        self.vram_peak_bytes = max(self.vram_peak_bytes, sum(self._buffers.values()))
        return Buffer(address, size)

    def free(self, buffer: Buffer) -> None:
        """Give memory back early."""
        self._buffers.pop(buffer.address)
        self._driver("cuMemFree_v2", buffer.address)

    def host(self, size: int, *, pinned: bool = True) -> HostBuffer:
        """Take page-locked memory; ordinary memory where WSL has none left or none is wanted."""
        address = ctypes.c_void_p()
        granted = (
            pinned
            and self._driver.code("cuMemHostAlloc", ctypes.byref(address), size, 0) == 0
            and bool(address.value)
        )
        if granted and address.value is not None:
            self._pinned.append(address)
            self.pinned_peak_bytes += size
            memory = (ctypes.c_ubyte * size).from_address(address.value)
        else:
            memory = (ctypes.c_ubyte * size)()
            self._pageable.append(memory)
        view = memoryview(memory).cast("B")
        return HostBuffer(ctypes.addressof(memory), view, pinned=granted)

    def upload(self, buffer: Buffer, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes to the device and wait."""
        content = bytes(data)
        inside(buffer, offset, len(content))
        self._aside("cuMemcpyHtoD_v2", buffer.address + offset, content, len(content))

    def download(self, buffer: Buffer, size: int | None = None, offset: int = 0) -> bytes:
        """Copy bytes from the device, after all queued work."""
        size = buffer.size - offset if size is None else size
        inside(buffer, offset, size)
        content = ctypes.create_string_buffer(size)
        self._aside("cuMemcpyDtoH_v2", content, buffer.address + offset, size)
        return content.raw

    def fill(self, buffer: Buffer, word: int) -> None:
        """Set every 32-bit word and wait."""
        self._aside("cuMemsetD32_v2", buffer.address, word, buffer.size // 4)
        self._driver("cuCtxSynchronize")

    def kernel(self, name: str, pinned: str | None = None) -> Kernel:
        """Load a kernel as ``Modules.kernel`` does. ``Errors: ProbeError`` with the JIT's log."""
        return self.modules.kernel(name, pinned)

    def launch(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], *arguments: Argument
    ) -> Call:
        """Prebuild a cuLaunchKernel; nothing is converted when it is called."""
        values = [_argument(value) for value in arguments]
        pointers = (ctypes.c_void_p * max(len(values), 1))(
            *(ctypes.addressof(value) for value in values)
        )
        shape = [ctypes.c_uint(size) for size in (*grid, 1, *block, 1, 0)]
        call = self._call(
            "cuLaunchKernel",
            kernel.handle,
            *shape,
            self._lanes[0],
            ctypes.cast(pointers, ctypes.c_void_p),
            None,
        )
        return Call(kernel.name, call.real, call.null, (values, pointers, call.keep), kernel)

    def graph(self, call: Call, count: int) -> Call:
        """Chain ``count`` launches as nodes; the call that is given launches them all.

        Nothing is captured: a capture that fails leaves its stream, or the driver, in disorder.
        """
        for name in GRAPH:
            if name not in self._driver.function:
                detail = f"{self._driver.library} does not define {name}"
                raise ProbeError(
                    Failure(Reason.UNSUPPORTED, detail, name, advice=Situation.TOO_OLD)
                )
        arguments: Any = call.keep
        function, *shape, stream, parameters, _ = arguments[-1]
        kernel = KernelNode(function, *(size.value for size in shape), parameters)
        newer = "cuGraphAddKernelNode_v2" in self._driver.function
        add = "cuGraphAddKernelNode_v2" if newer else "cuGraphAddKernelNode"
        graph, node = self._driver.created("cuGraphCreate", 0), ctypes.c_void_p()
        self._graphs.append(graph)
        for place in range(count):
            before, befores = ctypes.byref(node), min(place, 1)
            node = self._driver.created(add, graph, before, befores, ctypes.byref(kernel))
        executable = self._driver.created("cuGraphInstantiateWithFlags", graph, 0)
        self._executables.append(executable)
        return self._call("cuGraphLaunch", executable, stream)

    def copy_in(
        self, buffer: Buffer, host: HostBuffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy to the device, of all of the host memory unless ``size`` says how much.

        ``lane``: 0 is the stream everything else is on, 1 a second one for ``together``.
        """
        size = shared(buffer, host, size)
        return self._call(
            "cuMemcpyHtoDAsync_v2",
            POINTER(buffer.address),
            ctypes.c_void_p(host.address),
            SIZE(size),
            self._lane(lane),
        )

    def copy_out(
        self, host: HostBuffer, buffer: Buffer, *, size: int | None = None, lane: int = 0
    ) -> Call:
        """Prebuild a copy from the device, as ``copy_in``."""
        size = shared(buffer, host, size)
        return self._call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(host.address),
            POINTER(buffer.address),
            SIZE(size),
            self._lane(lane),
        )

    def copy_device(self, to: Buffer, source: Buffer) -> Call:
        """Prebuild a copy of the whole source within device memory."""
        inside(to, 0, source.size)
        return self._call(
            "cuMemcpyDtoDAsync_v2",
            POINTER(to.address),
            POINTER(source.address),
            SIZE(source.size),
            self._lanes[0],
        )

    def copy_across(self, to: Buffer, target: Gpu, source: Buffer, origin: Gpu) -> Call:
        """Prebuild a copy of the whole source from one GPU to another, on this one's stream."""
        inside(to, 0, source.size)
        call = self._call(
            "cuMemcpyPeerAsync",
            POINTER(to.address),
            target.context.handle,
            POINTER(source.address),
            origin.context.handle,
            SIZE(source.size),
            self._lanes[0],
        )
        return replace(call, gpus=2)

    def between(self) -> float:
        """Wait for the last event of a region; the GPU's seconds since the first.

        Errors: ``ProbeError``, also for a time that cannot be one.
        """
        first, last, *_ = self._events
        return self._elapsed(first, last)

    def query(self) -> Call:
        """Prebuild the question whether the stream is done: a driver sends what it has gathered."""
        return self._call("cuStreamQuery", self._lanes[0])

    def blocking_wait(self) -> tuple[Call, Call]:
        """Prebuild a record of an event, and a wait for it that gives up the core."""
        event = self._driver.created("cuEventCreate", EVENT_BLOCKING_SYNC)
        self._events.append(event)
        record = self._call("cuEventRecord", event, self._lanes[0])
        return record, self._call("cuEventSynchronize", event)

    def check(self, code: int, call: Call) -> None:
        """Raise what a non-zero code of ``call`` means."""
        if code and not (code == NOT_READY and call.name == "cuStreamQuery"):
            raise self._driver.error(_function(call), code)

    def about(self, *calls: Call) -> None:
        """Note the calls of a loop, once before it: one of them is where it may hang."""
        self._driver.progress.about(progress.names(map(_function, calls)))

    def perform(self, call: Call, repeats: int = 1) -> None:
        """Do a call, and wait for the stream."""
        self.about(call)
        for _ in range(repeats):
            self.check(call.real(), call)
        self.about(self.wait)
        self.check(self.wait.real(), self.wait)

    def timed(self, call: Call, repeats: int = 1) -> float:
        """Put ``repeats`` calls between two events. Units: seconds of GPU time for all of them."""
        self.about(self.first, call)
        self.check(self.first.real(), self.first)
        for _ in range(repeats):
            self.check(call.real(), call)
        self.check(self.last.real(), self.last)
        taken_s = self.between()
        self.busy_s += call.gpus * taken_s
        return taken_s

    def together(self, left: Call, right: Call, repeats: int = 1) -> float:
        """Do ``left`` of lane 0 and ``right`` of lane 1 at once, ``repeats`` times each.

        Units: seconds of GPU time from before the first to after the last of them.
        """
        first, _, meeting, *_ = self._events
        lane, other = self._lane(0), self._lane(1)
        begin = (self.first, self._call("cuStreamWaitEvent", other, first, 0))
        end = (
            self._call("cuEventRecord", meeting, other),
            self._call("cuStreamWaitEvent", lane, meeting, 0),
            self.last,
        )
        self.about(*begin, left, right)
        for call in begin:
            self.check(call.real(), call)
        for _ in range(repeats):
            self.check(left.real(), left)
            self.check(right.real(), right)
        for call in end:
            self.check(call.real(), call)
        taken_s = self.between()
        self.busy_s += taken_s
        return taken_s

    def conditions(self) -> dict[str, Condition]:
        """Give what the driver knows of the circumstances."""
        conditions: dict[str, Condition] = {
            **self._driver.progress.facts,
            "sync": "spin" if self._spin else "blocking",
            "context_s": self.context.opened_s,
            "module_load_s": self.modules.load_s,
        }
        try:
            conditions["memory_free_bytes"], conditions["memory_total_bytes"] = self.memory()
        except ProbeError:  # nothing depends on it, and a GPU that is lost does not say
            conditions["memory_free_bytes"] = conditions["memory_total_bytes"] = None
        return conditions

    @property
    def handles(self) -> dict[str, Iterable[Any]]:
        """What is to be given back, in order, by the function that does it."""
        return {
            "cuGraphExecDestroy": self._executables,
            "cuGraphDestroy": self._graphs,
            "cuEventDestroy_v2": self._events,
            "cuMemFreeHost": self._pinned,
            "cuMemFree_v2": list(self._buffers),
            "cuStreamDestroy_v2": self._lanes,
        }

    def close(self) -> None:
        """Give everything of this run back in order; what is refused is in ``release_errors``."""
        # Whatever went wrong late is said by the first.
        handles = {"cuCtxSynchronize": [None], **self.handles}
        self.release_errors = self._driver.give_back(handles)
        if self.peer is not None:
            self.release_errors = self.peer.close() | self.release_errors
        self.context.opened_s = None

    def _call(self, name: str, *arguments: Any) -> Call:  # noqa: ANN401  # ctypes values
        prototype = FUNCTIONS.get(name) or OPTIONAL[name]
        return Call(
            name,
            partial(self._driver.function[name], *arguments),
            null_call(prototype, arguments),
            arguments,
        )

    def _lane(self, number: int) -> ctypes.c_void_p:
        """Give a stream; the second one is taken by the first probe that wants two."""
        while len(self._lanes) <= number:
            self._lanes.append(self._driver.created("cuStreamCreate", 0))
        return self._lanes[number]

    def _aside(self, name: str, *arguments: Any) -> None:  # noqa: ANN401  # ctypes values
        """Do what is not measured, after all queued work; its GPU time is gpud's cost as well."""
        self.about(self.wait)
        self.check(self.wait.real(), self.wait)
        first, last = self._events[3:5]
        self._driver("cuEventRecord", first, None)
        self._driver(name, *arguments)
        self._driver("cuEventRecord", last, None)
        self.busy_s += self._elapsed(first, last)

    def _elapsed(self, first: ctypes.c_void_p, last: ctypes.c_void_p) -> float:
        self._driver("cuEventSynchronize", last)
        elapsed_ms = self._driver.value("cuEventElapsedTime", ctypes.c_float, first, last)
        if not 0 <= elapsed_ms <= LONGEST_MS:  # a NaN is refused too
            detail = f"the driver says that {elapsed_ms / 1e3:g} s passed between two events"
            raise ProbeError(Failure(Reason.CUDA_ERROR, detail, function="cuEventElapsedTime"))
        return float(elapsed_ms / 1e3)


class LoadedCuda:
    """The driver as this process has loaded it, and the one GPU that its runs share."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._context: PrimaryContext | None = None

    def driver(self, job: Job, progress: Progress) -> Driver:
        """Give the driver, loaded by the first job that asks. Errors: ``ProbeError``."""
        if self._driver is None:
            self._driver = Driver(job, progress)
        else:
            self._driver.begin(progress)
        return self._driver

    @contextlib.contextmanager
    def gpu(self, job: Job, *, spin: bool, progress: Progress) -> Iterator[Gpu]:
        """Give the GPU that ``job.gpu`` names by UUID for one run, the same one in every run.

        A second one, ``job.peer``, has a context for this run alone. Errors: ``ProbeError``.
        """
        with progress.start_up():
            driver = self.driver(job, progress)
            if self._context is None:
                self._context = PrimaryContext(driver, driver.device(job.gpu), spin=spin)
            else:
                self._context.wait_by(spin=spin)
            gpu = Gpu(self._context, spin=spin, left_out=job.left_out)
        try:
            with progress.start_up():
                gpu.start()
                if job.peer is not None:
                    from gpud.child.cuda_peer import Peer, of_second

                    with of_second(job.peer):
                        other = PrimaryContext(driver, driver.device(job.peer), spin=spin)
                    gpu.peer = Peer(gpu, Gpu(other, spin=spin, left_out={}))
                    gpu.peer.start()
            yield gpu
        finally:
            gpu.close()

    def close(self, progress: Progress) -> dict[str, str]:
        """Give the context back, if there is one. Returns what was refused, by function."""
        context, self._context = self._context, None
        if context is None:
            return {}
        context.driver.begin(progress)
        return context.close()


def _function(call: Call) -> str:
    """Name the driver function of a call: those of launches have the names of their kernels."""
    is_driver_function = call.name in FUNCTIONS or call.name in OPTIONAL
    return call.name if is_driver_function else "cuLaunchKernel"


def _argument(value: Argument) -> Any:  # noqa: ANN401  # a ctypes value
    if isinstance(value, Buffer):
        return POINTER(value.address)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_uint(value)
