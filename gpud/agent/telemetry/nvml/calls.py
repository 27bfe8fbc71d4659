"""A call of NVML, its answer as plain numbers and text, and what a refusal of it means.

``pynvml`` has a wrapper for nearly every function, under the function's own name. Its errors are
never compared or hashed (they cannot be): only their ``value`` is read.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """A function of nvml.h with the arguments that follow the device.

    ``members`` names what ``pynvml`` gives as a sequence; ``once``: the answer is of the hardware
    or the driver, and stays while the library is open.
    """

    function: str
    arguments: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    once: bool = False

    def answer(self, *handles: Any) -> Any:  # noqa: ANN401  # a number, text, a list, an opaque pointer
        """Return the answer as C gave it; of a struct its members, of a process list the ids.

        Errors: whatever ``pynvml`` raises.
        """
        wrapper = _OWN.get(self.function) or getattr(pynvml, self.function, None)
        if wrapper is None:  # a ``pynvml`` older than the function
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        answer = wrapper(*handles, *self.arguments)
        if self.members:
            return dict(zip(self.members, answer, strict=True))
        if self.function in PROCESS_LISTS:
            return [process.pid for process in answer]
        if isinstance(answer, ctypes.Structure):
            return {name: getattr(answer, name) for name, *_ in answer._fields_}
        return answer


def _field_value(gpu: Any, number: int) -> Any:  # noqa: ANN401  # a ctypes structure and its union
    """Ask for one of NVML's numbered fields; each has a code and a type of its own."""
    answer = pynvml.nvmlDeviceGetFieldValues(gpu, [number])[0]
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(answer.nvmlReturn)
    return getattr(answer.value, _MEMBERS[answer.valueType])


_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union, in the order of nvmlValueType_t."""

_OWN: Final[Mapping[str, Callable[..., Any]]] = {
    "nvmlDeviceGetCount_v2": pynvml.nvmlDeviceGetCount,
    "nvmlDeviceGetHandleByIndex_v2": pynvml.nvmlDeviceGetHandleByIndex,
    "nvmlDeviceGetMemoryInfo_v2": pynvml.nvmlDeviceGetMemoryInfo,  # the argument makes the version
    "nvmlDeviceGetFieldValues": _field_value,
}
"""Functions whose wrapper has another name, or will not do."""

PROCESS_LISTS: Final = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in ("v3", "v2")
)

WHOLE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Codes that speak of the library, whatever was asked: nothing else will be answered either.

The others speak of one call or one GPU. Even of ``UNKNOWN`` only many in a row mean more.
"""
NOT_IN_THE_DRIVER: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Codes that stay the same as long as the driver does. WSL2 withholds several fields: normal."""
LOST: Final = pynvml.NVML_ERROR_GPU_IS_LOST


@dataclass(frozen=True, slots=True)
class NvmlRefusal:
    """Why a call has no answer, in its own words; ``code`` is None where NVML gave none."""

    absent: Absent
    words: str
    code: int | None = None


def guarded(call: NvmlCall, question: Callable[[], T]) -> T | NvmlRefusal:
    """Return the answer to a question; whatever it raises is the refusal of ``call``."""
    try:
        return question()
    except pynvml.NVMLError as raised:
        return _refusal(call, raised)
    except Exception as raised:  # noqa: BLE001  # a driver may give anything, no UTF-8 for instance
        return NvmlRefusal(Absent.FAILED, f"{type(raised).__name__}: {raised}")


def _refusal(call: NvmlCall, raised: pynvml.NVMLError) -> NvmlRefusal:
    code = int(raised.value)
    try:
        words = str(raised)  # NVML is asked for the words of a code that ``pynvml`` does not have
    except (TypeError, UnicodeDecodeError):
        words = f"error {code}"
    absent = Absent.FAILED
    if code in NOT_IN_THE_DRIVER:
        absent = Absent.UNSUPPORTED
    elif code == pynvml.NVML_ERROR_INVALID_ARGUMENT and call.arguments:
        absent = Absent.UNSUPPORTED  # an older driver, of which ours asks too much
    elif code == pynvml.NVML_ERROR_NO_PERMISSION:
        absent = Absent.NOT_PERMITTED
    return NvmlRefusal(absent, words, code)
