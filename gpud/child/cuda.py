"""The CUDA driver through ctypes: loading it, and which GPUs it offers.

Only this file, ``cuda_gpu`` and ``cuda_peer`` call libcuda. Codes are plain integers; a refusal
becomes a ``ProbeError`` with the driver's own name for it. Source: CUDA driver API, plain exported
symbols, so that drivers of CUDA 11 answer as well as those of 13.
"""

from __future__ import annotations

import ctypes
import os
import re
import time

from gpud import regular_file
from gpud.child.cuda_api import FUNCTIONS, OPTIONAL, SIZE
from gpud.child.cuda_errors import failure
from gpud.core.advice import Situation
from gpud.core.errors import ProbeError
from gpud.core.record import replace
from gpud.core.sample import Device, Failure, Inventory, Job, Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from gpud.child.progress import Progress

SONAME = "libcuda.so.1"
LARGEST_MAPS = 4 << 20
WSL_LIBRARY = "usr/lib/wsl/lib/libcuda.so.1"

DRIVER_STORE = re.compile(r"/usr/lib/wsl/drivers/([^/]+)/.*libcuda\.so")

LOADING_MODES = {1: "eager", 2: "lazy"}
# CU_DEVICE_ATTRIBUTE_*
CLOCK_KHZ, SM_COUNT, L2_BYTES, CC_MAJOR, CC_MINOR, MPS_ENABLED = 13, 16, 38, 75, 76, 133


class Driver:
    """The loaded library. ``library`` is the file the loader really opened."""

    def __init__(self, job: Job, progress: Progress) -> None:
        """Load the library, resolve every function, initialise CUDA.

        Errors: ``ProbeError`` with the loader's own words, the missing symbol, or cuInit's code.
        """
        # Read by the driver when it loads: the first launch must not pay for lazy loading, a
        # service may have no HOME, and one index must mean one GPU in every program.
        os.environ["CUDA_MODULE_LOADING"] = "EAGER"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if job.cache_dir:
            os.environ["CUDA_CACHE_PATH"] = job.cache_dir
        self.progress = progress
        progress.about("dlopen")
        loaded = _loaded(job)
        self.library = _real_path(loaded)
        progress.facts["library"] = self.library
        self.function: dict[str, Callable[..., int]] = {}
        for name, prototype in (*FUNCTIONS.items(), *OPTIONAL.items()):
            try:
                function = loaded[name]
            except AttributeError as error:
                if name in OPTIONAL:
                    continue
                detail = f"{self.library} does not define {name}"
                raise ProbeError(
                    Failure(Reason.SYMBOL_MISSING, detail, function=name, advice=Situation.TOO_OLD)
                ) from error
            function.argtypes, function.restype = prototype, ctypes.c_int
            self.function[name] = function
        begun = time.monotonic()
        self("cuInit", 0)
        progress.facts["init_s"] = time.monotonic() - begun
        self.cuda_version = progress.facts["cuda_version"] = self._version()
        progress.facts["loading"] = self._loading()
        self._facts = dict(progress.facts)

    def begin(self, progress: Progress) -> None:
        """Note the calls of one more job."""
        self.progress = progress
        progress.facts |= self._facts

    def __call__(self, name: str, *arguments: Any) -> None:  # noqa: ANN401  # whatever C takes
        """Call a function by name. ``Errors: ProbeError`` for any code but 0."""
        if code := self.code(name, *arguments):
            raise self.error(name, code)

    def code(self, name: str, *arguments: Any) -> int:  # noqa: ANN401  # whatever C takes
        """Call a function by name and give its code, whatever it is."""
        self.progress.about(name)
        return self.function[name](*arguments)

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

    def created(self, name: str, *arguments: Any) -> ctypes.c_void_p:  # noqa: ANN401  # ctypes
        """Call a function whose first argument is where it writes a handle."""
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle

    def give_back(self, handles: Mapping[str, Iterable[Any]]) -> dict[str, str]:
        """Call each function with each of its handles. Returns what was refused, by function."""
        errors: dict[str, str] = {}
        for name, each in handles.items():
            for handle in each:
                try:
                    self(name, *(() if handle is None else (handle,)))
                except ProbeError as error:
                    errors.setdefault(name, error.failure.detail)
        return errors

    def devices(self) -> tuple[list[Device], list[Failure]]:
        """Describe the GPUs in PCI bus order, and say why of those that cannot be described."""
        described, refused = [], []
        for index in range(self.value("cuDeviceGetCount", ctypes.c_int)):
            try:
                described.append(self._described(index))
            except ProbeError as error:
                detail = f"{error.failure.detail}, asked about GPU {index}"
                refused.append(replace(error.failure, detail=detail))
        return described, refused

    def device(self, uuid: str | None) -> Device:
        """Describe the GPU with a UUID. ``Errors: ProbeError`` where CUDA has none such."""
        devices, refused = self.devices()
        device = next((device for device in devices if device.uuid == uuid), None)
        if device is not None:
            return device
        if refused:
            raise ProbeError(refused[0])
        detail = f"CUDA offers no GPU with the UUID {uuid}"
        what = Situation.GONE if devices else Situation.NO_GPU
        raise ProbeError(Failure(Reason.NO_DEVICE, detail, advice=what))

    def peak_hertz(self, index: int) -> float | None:
        """Give the highest clock of a GPU's multiprocessors; None where the driver does not."""
        ordinal = self.value("cuDeviceGet", ctypes.c_int, index)
        khz = self._label("cuDeviceGetAttribute", CLOCK_KHZ, ordinal)
        return khz * 1e3 if khz else None

    def _version(self) -> str | None:
        """Give the CUDA version the driver offers, "12.8"; None for a driver that names none."""
        number = self._label("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}" if number else None

    def _loading(self) -> str | None:
        mode = None
        if "cuModuleGetLoadingMode" in self.function:
            mode = self._label("cuModuleGetLoadingMode")
        return None if mode is None else LOADING_MODES.get(mode)

    def _label(self, name: str, *arguments: Any) -> int | None:  # noqa: ANN401  # ctypes
        """Ask for a number that nothing depends on; None where the driver refuses."""
        answer = ctypes.c_int()
        code = self.code(name, ctypes.byref(answer), *arguments)
        return None if code else answer.value

    def _described(self, index: int) -> Device:
        ordinal = self.value("cuDeviceGet", ctypes.c_int, index)
        name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
        uuid = (ctypes.c_ubyte * 16)()
        self("cuDeviceGetName", name, len(name), ordinal)
        self("cuDeviceGetPCIBusId", bus, len(bus), ordinal)
        # The newer one tells the instance of a MIG GPU, the older one the GPU it lies on.
        newer = "cuDeviceGetUuid_v2" in self.function
        self("cuDeviceGetUuid_v2" if newer else "cuDeviceGetUuid", uuid, ordinal)
        words = name.value.decode(errors="replace")
        mig = words.partition(" MIG ")[2] or None

        def attribute(number: int) -> int:
            value: int = self.value("cuDeviceGetAttribute", ctypes.c_int, number, ordinal)
            return value

        return Device(
            index=index,
            uuid=_uuid(bytes(uuid), mig=mig is not None),
            name=words,
            pci_bus_id=bus.value.decode(errors="replace"),
            compute_capability=f"{attribute(CC_MAJOR)}.{attribute(CC_MINOR)}",
            sm_count=attribute(SM_COUNT),
            l2_bytes=attribute(L2_BYTES),
            memory_total_bytes=self.value("cuDeviceTotalMem_v2", SIZE, ordinal),
            mig=mig,
            mps=self._uses_mps(ordinal),
        )

    def _uses_mps(self, ordinal: int) -> bool | None:
        """Say whether contexts go through MPS; drivers before CUDA 12.4 do not know that word."""
        answer = self._label("cuDeviceGetAttribute", MPS_ENABLED, ordinal)
        return None if answer is None else bool(answer)

    def _word(self, function: str, code: int) -> str | None:
        text = ctypes.c_char_p()
        if self.function[function](code, ctypes.byref(text)) or text.value is None:
            return None
        return text.value.decode(errors="replace")


def inventory(driver: Driver) -> Inventory:
    """List the GPUs CUDA offers, or say why there are none. No context is made.

    Errors: ``ProbeError`` where not even their number is known.
    """
    devices, refused = driver.devices()
    version, library = driver.cuda_version, driver.library
    if not devices:
        none = Failure(Reason.NO_DEVICE, f"{library} offers no GPU", advice=Situation.NO_GPU)
        failure = refused[0] if refused else none
        return Inventory(cuda_version=version, library=library, failure=failure)
    return Inventory(
        tuple(devices),
        version,
        library,
        driver_folder=_driver_folder(),
        refused=tuple(refused),
    )


def candidates(job: Job) -> list[str]:
    """Where the library may be: the configured path alone, else WSL's folder, then the loader's.

    WSL's comes first because a Linux driver package in the distribution wins otherwise, and finds
    no device.
    """
    if job.cuda_library:
        return [job.cuda_library]
    return [f"{job.sysroot.rstrip('/')}/{WSL_LIBRARY}", SONAME]


def _loaded(job: Job) -> ctypes.CDLL:
    words = []
    for path in candidates(job):
        try:
            return ctypes.CDLL(path)
        except (OSError, ValueError) as error:  # the latter: a NUL, a lone surrogate
            words.append(str(error))
    advice: str = Situation.LIBRARY_MISSING
    if job.cuda_library:  # no driver mends a path
        advice = "correct [cuda] library in gpud.toml, or leave it out"
    detail = "; ".join(dict.fromkeys(words))
    raise ProbeError(Failure(Reason.LIBRARY_MISSING, detail, function="dlopen", advice=advice))


def _real_path(loaded: ctypes.CDLL) -> str:
    """Find the mapped file: the SONAME alone does not tell which of several was taken."""
    for line in _maps():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith("libcuda.so"):
            return f"/{path}"
    return str(loaded._name)  # noqa: SLF001  # what was asked for, when /proc does not say


def _maps() -> list[str]:
    return (regular_file.text("/proc/self/maps", LARGEST_MAPS) or "").splitlines()


def _driver_folder() -> str | None:
    """Find the folder of Windows' driver store: WSL's library is a door to the one in there."""
    for line in _maps():
        if match := DRIVER_STORE.search(line):
            return match[1]
    return None


def _uuid(raw: bytes, *, mig: bool) -> str:
    text = raw.hex()
    return (
        f"{'MIG' if mig else 'GPU'}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    )
