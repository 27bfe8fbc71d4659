"""NVIDIA's nvbandwidth, where it is on PATH: the copies over the bus, at gpud's size."""

from __future__ import annotations

import os
import re
import shutil

from .processes import Refused, finished

GIGA, MIB = 1e9, 1 << 20
TESTS = {
    "host_to_device_memcpy_ce": "host_to_device",
    "device_to_host_memcpy_ce": "device_to_host",
}
SUM = re.compile(r"^SUM (\w+) ([\d.]+)", re.MULTILINE)


def nvbandwidth(uuid: str, copy_bytes: int) -> dict[str, float] | str:
    """Run it once, page-locked memory in ``copy_bytes``: bytes per second by mode, or why not."""
    program = shutil.which("nvbandwidth")
    if program is None:
        return "not on PATH"
    command = [program, "-b", str(max(copy_bytes // MIB, 1)), "-t", *TESTS]
    try:
        printed = finished(command, "", os.environ | {"CUDA_VISIBLE_DEVICES": uuid}).stdout
    except Refused as error:
        return str(error)
    return bandwidths(printed) or "its output holds no sum"


def bandwidths(printed: str) -> dict[str, float]:
    """Read its sums, in GB/s there and bytes per second here."""
    return {
        TESTS[name]: float(value) * GIGA
        for name, value in SUM.findall(printed)
        if name in TESTS and float(value) > 0
    }
