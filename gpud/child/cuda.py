"""The CUDA driver API through ctypes: the only file that touches libcuda.

One thread, one context, one stream, for the life of one short process. Codes are plain integers; a
refusal becomes a ``ProbeError`` with the driver's own name for it. Source: CUDA driver API, plain
exported symbols, so that drivers of CUDA 11 answer as well as those of 13.
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.child import kernels
from gpud.child.cuda_api import FUNCTIONS, OPTIONAL, POINTER, SIZE
from gpud.child.cuda_errors import STRAY, TOO_OLD, failure
from gpud.child.device import Buffer, Call, HostBuffer, Kernel, inside
from gpud.child.libc import null_call
from gpud.core.errors import ProbeError
from gpud.core.sample import Backend, Device, Failure, Inventory, Job, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpud.child.device import Argument
    from gpud.core.sample import Condition

SONAME = "libcuda.so.1"
WSL_LIBRARY = "usr/lib/wsl/lib/libcuda.so.1"

SPIN, BLOCKING_SYNC = 1, 4  # CU_CTX_SCHED_*
JIT_LOG, JIT_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
SM_COUNT, L2_BYTES, CC_MAJOR, CC_MINOR = 16, 38, 75, 76  # CU_DEVICE_ATTRIBUTE_*
LOADING_MODES = {1: "eager", 2: "lazy"}


class Driver:
    """The loaded library. ``library`` is the file the loader really opened."""

    def __init__(self, job: Job) -> None:
        """Load the library, resolve every function, initialise CUDA.

        Errors: ``ProbeError`` with the loader's own words, the missing symbol, or cuInit's code.
        """
        # Read by the driver when it loads: the first launch must not pay for lazy loading, a
        # service may have no HOME, and one index must mean one GPU in every program.
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if job.cache_dir:
            os.environ["CUDA_CACHE_PATH"] = job.cache_dir
        loaded = _loaded(candidates(job))
        self.library = _real_path(loaded)
        self.function: dict[str, Callable[..., int]] = {}
        for name, prototype in (*FUNCTIONS.items(), *OPTIONAL.items()):
            try:
                function = loaded[name]
            except AttributeError as error:
                if name in OPTIONAL:
                    continue
                detail = f"{self.library} does not define {name}"
                raise ProbeError(
                    Failure(Reason.SYMBOL_MISSING, detail, function=name, advice=TOO_OLD)
                ) from error
            function.argtypes, function.restype = prototype, ctypes.c_int
            self.function[name] = function
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: Any) -> None:  # noqa: ANN401  # whatever C takes
        """Call a function by name. ``Errors: ProbeError`` for any code but 0."""
        if code := self.function[name](*arguments):
            raise self.error(name, code)

    def error(self, name: str, code: int) -> ProbeError:
        """Put a code into words."""
        return ProbeError(
            failure(
                name,
                code,
                name=self._word("cuGetErrorName", code),
                text=self._word("cuGetErrorString", code),
            )
        )

    def value(self, name: str, kind: Any, *arguments: Any) -> Any:  # noqa: ANN401  # ctypes
        """Call a function whose first argument is where it writes one ``kind``."""
        result = kind()
        self(name, ctypes.byref(result), *arguments)
        return result.value

    def version(self) -> str:
        """Give the CUDA version the driver offers, "12.8"."""
        number = self.value("cuDriverGetVersion", ctypes.c_int)
        return f"{number // 1000}.{number % 1000 // 10}"

    def devices(self) -> list[Device]:
        """Describe every GPU, in PCI bus order."""
        count = self.value("cuDeviceGetCount", ctypes.c_int)
        return [self._described(index) for index in range(count)]

    def _described(self, index: int) -> Device:
        ordinal = self.value("cuDeviceGet", ctypes.c_int, index)
        name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
        uuid = (ctypes.c_ubyte * 16)()
        self("cuDeviceGetName", name, len(name), ordinal)
        self("cuDeviceGetPCIBusId", bus, len(bus), ordinal)
        self("cuDeviceGetUuid", uuid, ordinal)

        def attribute(number: int) -> int:
            found: int = self.value("cuDeviceGetAttribute", ctypes.c_int, number, ordinal)
            return found

        return Device(
            index=index,
            uuid=_uuid(bytes(uuid)),
            name=name.value.decode(errors="replace"),
            pci_bus_id=bus.value.decode(errors="replace"),
            compute_capability=f"{attribute(CC_MAJOR)}.{attribute(CC_MINOR)}",
            sm_count=attribute(SM_COUNT),
            l2_bytes=attribute(L2_BYTES),
            memory_total_bytes=self.value("cuDeviceTotalMem_v2", SIZE, ordinal),
        )

    def _word(self, function: str, code: int) -> str | None:
        text = ctypes.c_char_p()
        if self.function[function](code, ctypes.byref(text)) or text.value is None:
            return None
        return text.value.decode(errors="replace")


class CudaGpu:
    """One GPU behind the ``Gpu`` protocol. Made by ``opened``, which gives everything back."""

    def __init__(self, driver: Driver, device: Device, *, spin: bool) -> None:
        self._driver = driver
        self._device = device
        self._modules: dict[str, ctypes.c_void_p] = {}
        self._buffers: set[int] = set()
        self._pinned: list[ctypes.c_void_p] = []
        self._pageable: list[Any] = []
        self._events: list[ctypes.c_void_p] = []
        self._stream = ctypes.c_void_p()
        self._busy_s = 0.0
        self._load_s = 0.0
        self._ordinal = driver.value("cuDeviceGet", ctypes.c_int, device.index)
        begun = time.monotonic()
        driver("cuDevicePrimaryCtxSetFlags_v2", self._ordinal, SPIN if spin else BLOCKING_SYNC)
        self._context = _created(driver, "cuDevicePrimaryCtxRetain", self._ordinal)
        self._spin = spin
        self._context_s = time.monotonic() - begun

    def start(self) -> None:
        """Make the context current and take the stream and two events."""
        self._driver("cuCtxSetCurrent", self._context)
        self._stream = _created(self._driver, "cuStreamCreate", 0)
        for _ in range(2):
            self._events.append(_created(self._driver, "cuEventCreate", 0))
        self._wait = self._call("cuStreamSynchronize", self._stream)

    @property
    def backend(self) -> Backend:
        """CUDA."""
        return Backend.CUDA

    @property
    def device(self) -> Device:
        """The GPU as the driver describes it."""
        return self._device

    @property
    def sm_count(self) -> int:
        """Multiprocessors."""
        return self._device.sm_count

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""
        return self._device.l2_bytes

    @property
    def busy_s(self) -> float:
        """Seconds of GPU time between events so far."""
        return self._busy_s

    @property
    def wait(self) -> Call:
        """cuStreamSynchronize, prebuilt."""
        return self._wait

    def memory(self) -> tuple[int, int]:
        """Give free and total bytes; WDDM's free is not a promise."""
        free, total = SIZE(), SIZE()
        self._driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def alloc(self, size: int) -> Buffer:
        """Take plain device memory, never managed."""
        address = self._driver.value("cuMemAlloc_v2", POINTER, size)
        self._buffers.add(address)
        return Buffer(address, size)

    def free(self, buffer: Buffer) -> None:
        """Give memory back early."""
        self._buffers.discard(buffer.address)
        self._driver("cuMemFree_v2", buffer.address)

    def host(self, size: int) -> HostBuffer:
        """Take page-locked memory; where WSL has none left, ordinary memory."""
        address = ctypes.c_void_p()
        pinned = self._driver.function["cuMemHostAlloc"](ctypes.byref(address), size, 0) == 0
        if pinned and address.value is not None:
            self._pinned.append(address)
            memory = (ctypes.c_ubyte * size).from_address(address.value)
        else:
            memory = (ctypes.c_ubyte * size)()
            self._pageable.append(memory)
        view = memoryview(memory).cast("B")
        return HostBuffer(ctypes.addressof(memory), view, pinned=pinned)

    def upload(self, buffer: Buffer, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes to the device and wait."""
        content = bytes(data)
        inside(buffer, offset, len(content))
        self._settle()
        self._driver("cuMemcpyHtoD_v2", buffer.address + offset, content, len(content))

    def download(self, buffer: Buffer, size: int | None = None, offset: int = 0) -> bytes:
        """Copy bytes from the device, after all queued work."""
        wanted = buffer.size - offset if size is None else size
        inside(buffer, offset, wanted)
        self._settle()
        content = ctypes.create_string_buffer(wanted)
        self._driver("cuMemcpyDtoH_v2", content, buffer.address + offset, wanted)
        return content.raw

    def fill(self, buffer: Buffer, word: int) -> None:
        """Set every 32-bit word and wait."""
        self._settle()
        self._driver("cuMemsetD32_v2", buffer.address, word, buffer.size // 4)
        self._driver("cuCtxSynchronize")

    def kernel(self, name: str) -> Kernel:
        """Load a kernel, its module on first use. ``Errors: ProbeError`` with the JIT's log."""
        file, image = kernels.image(name)
        if file not in self._modules:
            self._modules[file] = self._loaded(image)
        function = _created(self._driver, "cuModuleGetFunction", self._modules[file], name.encode())
        return Kernel(name, function)

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
            self._stream,
            ctypes.cast(pointers, ctypes.c_void_p),
            None,
        )
        return Call(kernel.name, call.real, call.null, (values, pointers, call.keep))

    def copy_in(self, buffer: Buffer, host: HostBuffer) -> Call:
        """Prebuild a copy of the whole host buffer to the device."""
        inside(buffer, 0, len(host.view))
        return self._call(
            "cuMemcpyHtoDAsync_v2",
            POINTER(buffer.address),
            ctypes.c_void_p(host.address),
            SIZE(len(host.view)),
            self._stream,
        )

    def copy_out(self, host: HostBuffer, buffer: Buffer) -> Call:
        """Prebuild a copy from the device that fills the host buffer."""
        inside(buffer, 0, len(host.view))
        return self._call(
            "cuMemcpyDtoHAsync_v2",
            ctypes.c_void_p(host.address),
            POINTER(buffer.address),
            SIZE(len(host.view)),
            self._stream,
        )

    def check(self, code: int, call: Call) -> None:
        """Raise what a non-zero code of ``call`` means."""
        if code:
            name = call.name if call.name in FUNCTIONS else "cuLaunchKernel"
            raise self._driver.error(name, code)

    def timed(self, call: Call, repeats: int = 1) -> float:
        """Put ``repeats`` calls between two events. Units: seconds of GPU time for all of them."""
        first, last = self._events
        self._driver("cuEventRecord", first, self._stream)
        for _ in range(repeats):
            self.check(call.real(), call)
        self._driver("cuEventRecord", last, self._stream)
        self._driver("cuEventSynchronize", last)
        elapsed_ms = self._driver.value("cuEventElapsedTime", ctypes.c_float, first, last)
        self._busy_s += elapsed_ms / 1e3
        return float(elapsed_ms / 1e3)

    def account(self, seconds: float) -> None:
        """Add GPU time that no event saw."""
        self._busy_s += seconds

    def conditions(self) -> dict[str, Condition]:
        """Give what the driver knows of the circumstances."""
        free, total = self.memory()
        mode = None
        if "cuModuleGetLoadingMode" in self._driver.function:
            mode = LOADING_MODES.get(self._driver.value("cuModuleGetLoadingMode", ctypes.c_int))
        return {
            "library": self._driver.library,
            "cuda_version": self._driver.version(),
            "sync": "spin" if self._spin else "blocking",
            "loading": mode,
            "context_s": self._context_s,
            "module_load_s": self._load_s,
            "memory_free_bytes": free,
            "memory_total_bytes": total,
        }

    def close(self) -> None:
        """Give everything back in order; a GPU that is lost refuses, and that is no news then."""
        driver = self._driver
        with suppress(ProbeError):
            driver("cuCtxSynchronize")
        for name, handles in (
            ("cuEventDestroy_v2", self._events),
            ("cuMemFreeHost", self._pinned),
            ("cuMemFree_v2", list(self._buffers)),
            ("cuModuleUnload", list(self._modules.values())),
            ("cuStreamDestroy_v2", [self._stream] if self._stream else []),
            ("cuDevicePrimaryCtxRelease_v2", [self._ordinal]),
        ):
            for handle in handles:
                with suppress(ProbeError):
                    driver(name, handle)

    def _call(self, name: str, *arguments: Any) -> Call:  # noqa: ANN401  # ctypes values
        return Call(
            name,
            partial(self._driver.function[name], *arguments),
            null_call(FUNCTIONS[name], arguments),
            arguments,
        )

    def _settle(self) -> None:
        self.check(self._wait.real(), self._wait)

    def _loaded(self, image: bytes) -> ctypes.c_void_p:
        module, said = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(JIT_LOG, JIT_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(said), len(said))
        begun = time.monotonic()
        code = self._driver.function["cuModuleLoadDataEx"](
            ctypes.byref(module), image + b"\0", len(options), options, values
        )
        self._load_s += time.monotonic() - begun
        if code:
            refusal = self._driver.error("cuModuleLoadDataEx", code).failure
            words = said.value.decode(errors="replace").strip()
            detail = f"{refusal.detail}; {words}" if words else refusal.detail
            raise ProbeError(
                Failure(refusal.reason, detail, refusal.function, refusal.code, refusal.advice)
            )
        return module


@contextmanager
def opened(job: Job, *, spin: bool) -> Iterator[CudaGpu]:
    """Open the GPU that ``job.gpu`` names by UUID, and give everything back in the end.

    Errors: ``ProbeError``.
    """
    driver = Driver(job)
    for device in driver.devices():
        if device.uuid == job.gpu:
            break
    else:
        detail = f"CUDA offers no GPU with the UUID {job.gpu}"
        raise ProbeError(Failure(Reason.NO_DEVICE, detail, advice=STRAY))
    gpu = CudaGpu(driver, device, spin=spin)
    try:
        gpu.start()
        yield gpu
    finally:
        gpu.close()


def inventory(job: Job) -> Inventory:
    """List the GPUs CUDA offers, or say why there are none. No context is made."""
    library = None
    try:
        driver = Driver(job)
        library = driver.library
        found = tuple(driver.devices())
        version = driver.version()
    except ProbeError as error:
        return Inventory(library=library, failure=error.failure)
    if not found:
        none = Failure(Reason.NO_DEVICE, f"{library} offers no GPU", advice=STRAY)
        return Inventory(cuda_version=version, library=library, failure=none)
    return Inventory(found, version, library)


def candidates(job: Job) -> list[str]:
    """Where the library may be: the configured path alone, else WSL's folder, then the loader's.

    WSL's comes first because a Linux driver package in the distribution wins otherwise, and finds
    no device.
    """
    if job.cuda_library:
        return [job.cuda_library]
    return [f"{job.sysroot.rstrip('/')}/{WSL_LIBRARY}", SONAME]


def _loaded(paths: list[str]) -> ctypes.CDLL:
    words = []
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except (OSError, ValueError) as error:  # the latter: a NUL, a lone surrogate
            words.append(str(error))
    advice = "install or update the NVIDIA driver in Windows; WSL provides the library"
    detail = "; ".join(dict.fromkeys(words))
    raise ProbeError(Failure(Reason.LIBRARY_MISSING, detail, function="dlopen", advice=advice))


def _real_path(loaded: ctypes.CDLL) -> str:
    """Find the mapped file: the SONAME alone does not tell which of several was taken."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path and Path(path).name.startswith("libcuda.so"):
            return f"/{path}"
    return str(loaded._name)  # noqa: SLF001  # what was asked for, when /proc does not say


def _created(driver: Driver, name: str, *arguments: Any) -> ctypes.c_void_p:  # noqa: ANN401
    handle = ctypes.c_void_p()
    driver(name, ctypes.byref(handle), *arguments)
    return handle


def _argument(value: Argument) -> Any:  # noqa: ANN401  # a ctypes value
    if isinstance(value, Buffer):
        return POINTER(value.address)
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_uint(value)


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
