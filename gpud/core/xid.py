"""What NVIDIA's numbered errors are, in a few words. Source: NVIDIA's Xid catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE: Final = "No Error"
UNKNOWN: Final = "Unknown Error"

MEANINGS: Final[Mapping[int, str]] = {
    0: NONE,
    8: "GPU stopped processing",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    38: "Driver firmware error",
    43: "GPU stopped processing",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    56: "Display Engine error",
    57: "Error programming video memory interface",
    58: "Unstable video memory interface detected",
    61: "Internal micro-controller breakpoint/warning",
    62: "Internal micro-controller halt",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    109: "Context Switch Timeout Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Link Error",
    140: "Unrecovered ECC Error",
}
"""Those that a driver of today reports; what is not here is ``UNKNOWN``."""


def meaning(code: int) -> str:
    """Say what an Xid means; 0 is none at all."""
    return MEANINGS.get(code, UNKNOWN)
