"""The modules of a context: kernels the driver compiles from PTX, and kernels that are pinned.

A pinned kernel is machine code made from the same source when gpud was built: a driver with another
compiler changes the one and not the other.
"""

from __future__ import annotations

import ctypes
import time

from gpud.child import kernels
from gpud.child.cuda_api import POINTER, SIZE
from gpud.child.device import Buffer, Kernel
from gpud.core.errors import ProbeError
from gpud.core.record import Record
from gpud.core.sample import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from gpud.child.cuda import Driver

JIT_LOG, JIT_LOG_SIZE = 5, 6  # CU_JIT_ERROR_LOG_BUFFER and its size
ATTRIBUTES: Final = {
    "{} registers": 4,
    "{} B shared": 1,
    "{} B local": 3,
    "{} B constant": 2,
    "{} threads": 0,
    "sm_{}": 6,
    "PTX {}": 5,
}
"""How an attribute of a compiled kernel is written, and its number: CU_FUNC_ATTRIBUTE_*."""


class Stamps(Record):
    """Where a kernel adds up its clocks: uint64[4] and uint64[2], as ``instructions.cuh`` says."""

    ends: Buffer
    begins: Buffer


class Modules:
    """What is loaded into one context. ``load_s``: seconds of loading since that was set to 0."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._modules: dict[str, ctypes.c_void_p] = {}
        self.load_s = 0.0

    @property
    def handles(self) -> list[ctypes.c_void_p]:
        """The modules, for the driver to unload."""
        return list(self._modules.values())

    def kernel(self, name: str, pinned: str | None = None) -> Kernel:
        """Load a kernel, its module on first use. Errors: ``ProbeError`` with the driver's log.

        ``pinned``: the file of machine code that has it; else it is compiled from PTX.
        """
        file, image = kernels.image(name) if pinned is None else kernels.code(pinned)
        if file not in self._modules:
            self._modules[file] = self._loaded(image)
        module = self._modules[file]
        handle = self._driver.created("cuModuleGetFunction", module, name.encode())
        return Kernel(name, handle, module)

    def stamps(self, kernel: Kernel) -> Stamps | None:
        """Return where a kernel adds up its clocks; None where it or the driver does not."""
        ends, begins = (self._variable(kernel, name) for name in ("gpud_ends", "gpud_begins"))
        return None if ends is None or begins is None else Stamps(ends, begins)

    def code(self, kernel: Kernel) -> str | None:
        """Describe the machine code of a kernel, "128 registers, ..."; None where nobody does.

        The driver does not give the size of the code.
        """
        if "cuFuncGetAttribute" not in self._driver.function:
            return None
        parts = []
        for form, number in ATTRIBUTES.items():
            value = ctypes.c_int()
            if self._driver.code("cuFuncGetAttribute", ctypes.byref(value), number, kernel.handle):
                return None
            parts.append(form.format(value.value))
        return ", ".join(parts)

    def _variable(self, kernel: Kernel, name: str) -> Buffer | None:
        if "cuModuleGetGlobal_v2" not in self._driver.function:
            return None
        address, size = POINTER(), SIZE()
        code = self._driver.code(
            "cuModuleGetGlobal_v2",
            ctypes.byref(address),
            ctypes.byref(size),
            kernel.module,
            name.encode(),
        )
        return None if code else Buffer(address.value, size.value)

    def _loaded(self, image: bytes) -> ctypes.c_void_p:
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(JIT_LOG, JIT_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        begun = time.monotonic()
        with self._driver.progress.start_up():
            code = self._driver.code(
                "cuModuleLoadDataEx",
                ctypes.byref(module),
                image + b"\0",
                len(options),
                options,
                values,
            )
        self.load_s += time.monotonic() - begun
        if code:
            refusal = self._driver.error("cuModuleLoadDataEx", code).failure
            words = log.value.decode(errors="replace").strip()
            detail = f"{refusal.detail}; {words}" if words else refusal.detail
            raise ProbeError(
                Failure(refusal.reason, detail, refusal.function, refusal.code, refusal.advice)
            )
        return module
