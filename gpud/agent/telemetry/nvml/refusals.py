"""NVML's refusals: their meaning for one field, for one GPU, and for the library as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pynvml

from gpud.agent.telemetry.codes import CODES
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.errors import TelemetryError
from gpud.core.sample import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.agent.telemetry.nvml.calls import Call
    from gpud.core.advice import Platform

T = TypeVar("T")

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

UNKNOWN_TO_THE_DRIVER: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Codes that stay the same as long as the driver does. WSL2 withholds several fields: normal."""

LOST: Final = pynvml.NVML_ERROR_GPU_IS_LOST


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call has no answer, in its own words; ``code`` is None where NVML gave none."""

    absent: Absent
    words: str
    code: int | None = None


NOT_ASKED: Final = Refusal(Absent.NOT_ASKED, "[telemetry] pcie_throughput is off")


def guarded(call: Call, question: Callable[[], T]) -> T | Refusal:
    """Return the answer to a question; whatever it raises is the refusal of ``call``."""
    try:
        return question()
    except Exception as raised:  # noqa: BLE001  # what a driver makes of a call is anybody's guess
        return _refusal(call, raised)


def _refusal(call: Call, raised: Exception) -> Refusal:
    if not isinstance(raised, pynvml.NVMLError):
        return Refusal(Absent.FAILED, f"{type(raised).__name__}: {raised}")
    code = int(raised.value)
    if code in UNKNOWN_TO_THE_DRIVER:
        absent = Absent.UNSUPPORTED
    elif code == pynvml.NVML_ERROR_INVALID_ARGUMENT and call.arguments:
        absent = Absent.UNSUPPORTED  # an older driver, of which ours asks too much
    elif code == pynvml.NVML_ERROR_NO_PERMISSION:
        absent = Absent.NOT_PERMITTED
    else:
        absent = Absent.FAILED
    return Refusal(absent, _words(raised), code)


def _words(raised: pynvml.NVMLError) -> str:
    """Return NVML's own words; it is asked for those of a code that ``pynvml`` does not know."""
    try:
        return str(raised)
    except (TypeError, UnicodeDecodeError):  # the library gave no text, or no UTF-8
        return f"error {raised.value}"


def error(refusal: Refusal, where: Platform) -> TelemetryError:
    """Return the error for a refusal of NVML as a whole, with what helps."""
    reason, situation = "failed", Situation.SILENT
    message = f"NVML: {refusal.words}"
    if refusal.code is not None:
        reason, situation = CODES.get(refusal.code, (reason, situation))
        message += f" ({refusal.code})"
    return TelemetryError(message, reason=reason, fix=advice.words(situation, where))
