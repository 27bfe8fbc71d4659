"""Driver functions that a child looks up, as the dynamic loader of the C library tells them."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from gpud.child.cuda_api import FUNCTIONS, OPTIONAL
from tests.child.running import GPU, INTERPRETED, ask
from tests.child.sweep import A_SMALL_GPU
from tests.standins.build import build_libcuda
from tests.standins.loaded import virtual_time

if TYPE_CHECKING:
    from pathlib import Path

PROBES = ("launch", "event", "small_copy", "triad", "copy", "device_copy", "nbody", "matmul")


def test_no_probe_looks_up_capture_of_streams_managed_memory_or_a_way_around_the_list(
    tmp_path: Path,
) -> None:
    library = build_libcuda(tmp_path, A_SMALL_GPU)
    jobs = [{"probe": name, "gpu": GPU, "cuda_library": str(library)} for name in PROBES]
    environment = virtual_time(tmp_path, INTERPRETED)
    watched = {"LD_DEBUG": "symbols", "LD_DEBUG_OUTPUT": str(tmp_path / "symbols")}
    ended = ask("--serve", "\n".join(map(json.dumps, jobs)), environment=environment | watched)
    reports = [json.loads(line) for line in ended.out.splitlines()]
    assert [report["failure"] for report in reports] == [None] * len(PROBES), ended.err
    (file,) = tmp_path.glob("symbols.*")
    names = set(re.findall(r"symbol=(cu[A-Z]\w+);", os.fsdecode(file.read_bytes())))
    assert set(FUNCTIONS) <= names <= {*FUNCTIONS, *OPTIONAL}
    assert not [name for name in names if re.search("Capture|Managed|GetProcAddress|Export", name)]
