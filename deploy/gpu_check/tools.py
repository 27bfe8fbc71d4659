"""Other tools at the same work, where they are there: PyTorch, CuPy, nvbandwidth.

Each figure is by the name of the row it belongs to, in its unit. What is absent is said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

from .processes import Refused, finished

FRAMEWORKS = ("torch", "cupy")
SCRIPT = Path(__file__).with_name("frameworks.py")
GIGA = 1e9
BANDWIDTH_TESTS = {
    "host_to_device_memcpy_ce": "host_to_device",
    "device_to_host_memcpy_ce": "device_to_host",
}
SUM = re.compile(r"^SUM (\w+) ([\d.]+)", re.MULTILINE)

Figures = dict[str, dict[str, float]]
"""By tool, then by row."""


def measured(uuid: str, sizes: dict[str, int]) -> tuple[Figures, dict[str, str]]:
    """Run every tool once. What comes second says why a tool brought nothing."""
    figures: Figures = {}
    absent: dict[str, str] = {}
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
    for name in FRAMEWORKS:
        command = [sys.executable, "-P", str(SCRIPT), name, json.dumps(sizes)]
        try:
            ended = finished(command, "", environment)
            document = json.loads(ended.stdout)
        except Refused as error:
            absent[name] = str(error)
        except ValueError:
            last = ended.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            absent[name] = last[0]
        else:
            figures[name] = document
    program = shutil.which("nvbandwidth")
    if program is None:
        absent["nvbandwidth"] = "not on PATH"
        return figures, absent
    try:
        said = finished([program, "-t", *BANDWIDTH_TESTS], "", environment).stdout
    except Refused as error:
        absent["nvbandwidth"] = str(error)
        return figures, absent
    found = bandwidths(said)
    if found:
        figures["nvbandwidth"] = found
    else:
        absent["nvbandwidth"] = "its output holds no sum"
    return figures, absent


def bandwidths(said: str) -> dict[str, float]:
    """Read nvbandwidth's sums, in GB/s there and bytes per second here."""
    return {
        BANDWIDTH_TESTS[name]: float(value) * GIGA
        for name, value in SUM.findall(said)
        if name in BANDWIDTH_TESTS and float(value) > 0
    }
