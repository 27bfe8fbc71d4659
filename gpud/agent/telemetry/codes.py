"""NVML's return codes about the library as a whole, and its Xids, as words.

Sources: nvml.h, "RETURN VALUE" of nvidia-smi's manual (it ends with the same numbers), NVIDIA's Xid
catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.core.advice import Situation

if TYPE_CHECKING:
    from collections.abc import Mapping

CODES: Final[Mapping[int, tuple[str, Situation]]] = {
    4: ("not_permitted", Situation.BLOCKED),
    9: ("driver_not_loaded", Situation.NOT_LOADED),
    12: ("library_missing", Situation.LIBRARY_MISSING),
    13: ("symbol_missing", Situation.TOO_OLD),
    15: ("gpu_is_lost", Situation.VANISHED),
    16: ("reset_required", Situation.AGAIN),
    17: ("blocked_by_the_operating_system", Situation.BLOCKED),
    18: ("driver_mismatch", Situation.MISMATCH),
}
"""Reason and situation by code."""

XIDS: Final[Mapping[int, str]] = {
    0: "No Error",
    8: "GPU stopped processing",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    38: "Driver firmware error",
    43: "GPU stopped processing",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors",
    46: "GPU stopped processing",
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
    110: "Security Fault Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Link Error",
    122: "SPI PMU RPC Read Failure",
    123: "SPI PMU RPC Write Failure",
    124: "SPI PMU RPC Erase Failure",
    125: "Inforom FS Failure",
    136: "ALI Training Fail",
    137: "NVLink Privilege Error",
    140: "Unrecovered ECC Error",
    143: "GPU Initialization Failure",
    144: "NVLINK: Saw Error",
    145: "NVLINK: RLW Error",
    146: "NVLINK: TLW Error",
    147: "NVLINK: TREX Error",
    148: "NVLINK: NVLPW_CTRL Error",
    149: "NVLINK: NETIR Error",
    150: "NVLINK: MSE Error",
    154: "GPU Recovery Action Changed",
    155: "NVLINK: SW Defined Error",
    156: "Resource Retirement Event",
    157: "Resource Retirement Failure",
    158: "GPU Fatal Timeout",
    160: "Channel Retirement Event",
    161: "Channel Retirement Failure",
    167: "PCIE Fatal Timeout",
    168: "Reduced GPU Memory Capacity",
    169: "Internal micro-controller halt",
    171: "Uncorrectable DRAM Error",
    172: "Uncorrectable SRAM Error",
}
"""Those that a driver of today reports; any other is an unknown one."""
