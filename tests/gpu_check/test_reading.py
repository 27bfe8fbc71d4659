"""What other programs print, read: compute-sanitizer, nvbandwidth, ptxas."""

from __future__ import annotations

import json

import pytest

from deploy.gpu_check import clocks, sanitize, toolchain, tools
from deploy.gpu_check.processes import reference_run

SAID = json.dumps({"device": {}, "figures": {}, "missing": {}, "verified": ["triad", "nbody"]})
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES_CLEAN = (
    "========= COMPUTE-SANITIZER\n"
    "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
)
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 16 bytes
=========     at gpud_triad+0x230
=========     by thread (255,0,0) in block (63,0,0)
========= ERROR SUMMARY: 1 error
"""
REFUSED = "========= COMPUTE-SANITIZER\n========= Error: Device not supported.\n"
PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'ref_triad' for 'sm_90'
ptxas info    : Function properties for ref_triad
    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'ref_empty' for 'sm_90'
ptxas info    : Function properties for ref_empty
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 4 registers, used 0 barriers
"""


@pytest.mark.parametrize("log", [CLEAN, RACES_CLEAN])
def test_a_clean_run_names_the_kernels_that_were_looked_at(log: str) -> None:
    checked = sanitize.outcome("memcheck", 0, SAID, "", log)
    assert checked.clean
    assert checked.kernels == ("gpud_triad", "gpud_nbody")


def test_a_complaint_names_its_kernel_and_is_not_clean() -> None:
    checked = sanitize.outcome("memcheck", sanitize.FOUND, SAID, "", OUT_OF_BOUNDS)
    assert checked.ran
    assert not checked.clean
    assert checked.dirty == ("gpud_triad",)
    assert checked.said == "Invalid __global__ write of size 16 bytes"


@pytest.mark.parametrize(
    ("code", "said", "log"),
    [
        (1, "", REFUSED),  # the tool cannot work on this machine
        (0, SAID, ""),  # no summary at all
        (0, "", CLEAN),  # the program under it printed nothing
        (1, "", CLEAN),  # its own verification failed
        (-9, "", ""),
    ],
)
def test_nothing_else_is_taken_for_clean(code: int, said: str, log: str) -> None:
    checked = sanitize.outcome("memcheck", code, said, "", log)
    assert checked.ran is ("SUMMARY" in log)
    assert not checked.clean
    assert checked.said


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (-14, "", "did not end within its time"),
        (-11, "", "ended by signal 11"),
        (3, "", "ended with code 3"),
        (1, "reference: a\n reference: b\n", "reference: a; reference: b"),
        (0, "", "said no JSON"),
    ],
)
def test_a_reference_that_brings_nothing_says_why(code: int, stderr: str, words: str) -> None:
    run = reference_run(code, "", stderr)
    assert run.figures == {}
    assert run.failure is not None
    assert words in run.failure


def test_the_sums_of_nvbandwidth_are_bytes_per_second() -> None:
    said = "SUM host_to_device_memcpy_ce 55.25\nSUM device_local_copy 1.0\nNOTE: SUM x 1\n"
    assert tools.bandwidths(said) == {"host_to_device": 55.25e9}
    assert tools.bandwidths("SUM host_to_device_memcpy_ce 0.00\n") == {}


def test_registers_and_spills_belong_to_the_kernel_they_stand_under() -> None:
    assert toolchain.resources(PTXAS) == {
        "ref_triad": {"registers": 18, "spilled_bytes": 8},
        "ref_empty": {"registers": 4, "spilled_bytes": 0},
    }


def test_what_the_driver_does_not_support_has_no_clock() -> None:
    assert clocks.values("2475, 10501, 61, [N/A], 812\r\n") == {
        "sm_mhz": 2475,
        "memory_mhz": 10501,
        "celsius": 61,
        "memory_mib": 812,
    }
    assert clocks.values('Field "clocks.sm" is not a valid field to query.\n') == {}
