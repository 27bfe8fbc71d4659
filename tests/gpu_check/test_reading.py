"""What other programs print, read: compute-sanitizer, nvbandwidth, ptxas."""

from __future__ import annotations

import json

import pytest

from deploy.gpu_check import sanitize, toolchain
from deploy.gpu_check.processes import reference_run

SAID = json.dumps({"device": {}, "figures": {}, "missing": {}, "verified": ["triad", "nbody"]})
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
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


def test_registers_and_spills_belong_to_the_kernel_they_stand_under() -> None:
    assert toolchain.resources(PTXAS) == {
        "ref_triad": {"registers": 18, "spilled_bytes": 8},
        "ref_empty": {"registers": 4, "spilled_bytes": 0},
    }
