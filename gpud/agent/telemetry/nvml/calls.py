"""One question to NVML: the C function, its arguments, and its answer as plain numbers and text.

``pynvml`` has a wrapper for nearly every function, under the function's own name. Its errors are
never compared or hashed (they cannot be): only their ``value`` is read.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PROCESSES = 4096
"""What a driver may claim to list; a buffer for more is not made."""
ROOM = 8  # for processes that begin between two calls
ATTEMPTS = 3

Plain: TypeAlias = int | float | str | dict[str, int | float | str] | list[int]
"""What a call gave: a number or text, the members of a struct, or process ids."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of nvml.h with the arguments that follow the device.

    ``members`` names what ``pynvml`` gives as a sequence; ``once``: the answer is of the hardware
    or the driver, and stays while the library is open.
    """

    function: str
    arguments: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    once: bool = False

    def asked(self, *handles: Any) -> Plain:  # noqa: ANN401  # opaque pointers
        """Ask, and give the answer as C gave it. Errors: whatever ``pynvml`` raises."""
        answer = _wrapper(self.function)(*handles, *self.arguments)
        if self.members:
            return dict(zip(self.members, answer, strict=True))
        if isinstance(answer, ctypes.Structure):
            return {name: getattr(answer, name) for name, *_ in answer._fields_}
        return answer  # type: ignore[no-any-return]  # pynvml has no types


def _wrapper(function: str) -> Callable[..., Any]:
    wrapper = _OWN.get(function) or getattr(pynvml, function, None)
    if wrapper is None:  # a ``pynvml`` older than the function
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return wrapper


def _field_value(gpu: Any, number: int) -> Any:  # noqa: ANN401  # a ctypes structure and its union
    """Ask for one of NVML's numbered fields; each has a code and a type of its own."""
    answer = pynvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return getattr(answer.value, _MEMBERS[answer.valueType])


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union, in the order of nvmlValueType_t."""


def _process_ids(function: str, gpu: Any) -> list[int]:  # noqa: ANN401  # an opaque pointer
    """List the processes with a context; ``pynvml`` would make any buffer the driver asks for."""
    pointer = getattr(pynvml.nvmlLib, function, None)
    if pointer is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    room = 0
    for _ in range(ATTEMPTS):
        count = ctypes.c_uint(room)
        buffer = (pynvml.c_nvmlProcessInfo_v2_t * room)()  # the form of the third version too
        code = pointer(gpu, ctypes.byref(count), buffer if room else None)
        if code == pynvml.NVML_SUCCESS:
            return [info.pid for info in buffer[: count.value]]
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            break
        if count.value > MOST_PROCESSES:
            raise ValueError(f"the driver claims {count.value} processes")
        room = max(count.value, 2 * room) + ROOM
    raise pynvml.NVMLError(code)


_PROCESS_LISTS = [
    f"nvmlDeviceGet{kind}RunningProcesses_{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("v3", "v2")
]

_OWN: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetCount_v2": pynvml.nvmlDeviceGetCount,
    "nvmlDeviceGetHandleByIndex_v2": pynvml.nvmlDeviceGetHandleByIndex,
    "nvmlDeviceGetMemoryInfo_v2": pynvml.nvmlDeviceGetMemoryInfo,  # which one, says its argument
    "nvmlDeviceGetFieldValues": _field_value,
    **{function: partial(_process_ids, function) for function in _PROCESS_LISTS},
}
"""Functions whose wrapper has another name, or will not do."""
