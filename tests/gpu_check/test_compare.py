"""Ratios and verdicts, and what other programs print: read, compared and said."""

from __future__ import annotations

import json

import pytest

from deploy.gpu_check import compare, sanitize, toolchain
from deploy.gpu_check.compare import Against, Round, Row, Target, Verdict
from deploy.gpu_check.processes import Figure, Run, failed, reference_run

SUBMIT = Row("launch", "submit", ("submit",), compare.LATENCY)
TRIAD = Row("triad", "triad", ("triad",), compare.THROUGHPUT)
COPY = Row("copy", "both", ("both",), compare.COPY)
LIBRARY = Row("tensor", "tensor", ("tensor_cublas",), compare.TENSOR_LIBRARY, Against.CUBLAS)


def run(**medians: float) -> Run:
    figures = {name: Figure(value, "seconds", value, value, 9) for name, value in medians.items()}
    return Run(figures, {}, None, {})


def lacking(**missing: str) -> Run:
    return Run({}, missing, None, {})


def rounds(row: Row, *pairs: tuple[Run, Run]) -> list[Round]:
    return [Round(row.probe, ours, theirs) for ours, theirs in pairs]


@pytest.mark.parametrize(
    ("target", "ratio", "holds"),
    [
        (compare.LATENCY, 1.03, True),
        (compare.LATENCY, 0.97, True),
        (compare.LATENCY, 1.031, False),
        (compare.LATENCY, 0.96, False),  # a C loop that is slower is a wrong C loop
        (compare.THROUGHPUT, 0.97, True),
        (compare.THROUGHPUT, 0.9699, False),
        (compare.THROUGHPUT, 1.2, True),
        (compare.COPY, 0.95, True),
        (compare.COPY, 0.949, False),
        (compare.NO_TARGET, 0.1, True),
    ],
)
def test_a_target_says_what_a_ratio_must_be(target: Target, ratio: float, *, holds: bool) -> None:
    assert target.holds(ratio) is holds


def test_the_ratio_is_the_median_over_the_pairs_and_the_spread_is_kept() -> None:
    pairs = [(run(triad=ours), run(triad=100)) for ours in (99, 98, 40, 97.5, 101)]
    judged = compare.judged(TRIAD, rounds(TRIAD, *pairs), {})
    assert judged.ratio == pytest.approx(0.98)
    assert (min(judged.ratios), max(judged.ratios)) == pytest.approx((0.40, 1.01))
    assert judged.verdict is Verdict.HELD
    assert judged.good


def test_a_mode_that_gpud_does_not_measure_is_said_and_spoils_the_whole() -> None:
    judged = compare.judged(COPY, rounds(COPY, (run(), run(both=1.0))), {})
    assert judged.verdict is Verdict.NOT_MEASURED
    assert judged.reason == "gpud: not measured by gpud"
    assert not judged.good
    assert judged.ratio is None


def test_what_neither_side_can_do_on_this_gpu_spoils_nothing() -> None:
    nothing = lacking(triad="unsupported: too old")
    judged = compare.judged(TRIAD, rounds(TRIAD, (nothing, lacking(triad="no kernel"))), {})
    assert judged.verdict is Verdict.NOT_OFFERED
    assert judged.good


def test_one_failed_round_is_not_outvoted_by_the_others() -> None:
    good = (run(triad=1.0), run(triad=1.0))
    for bad in (
        (failed("verification_failed: a triad result is wrong"), good[1]),
        (good[0], failed("reference: ref_triad: element 7 is 1, not 2")),
    ):
        judged = compare.judged(TRIAD, rounds(TRIAD, good, bad, good), {})
        assert judged.verdict is Verdict.NOT_MEASURED
        assert len(judged.ratios) == 2
        assert judged.reason
        assert "element 7" in judged.reason or "verification_failed" in judged.reason


def test_a_short_latency_may_differ_by_what_the_caches_cost() -> None:
    for ours, theirs, verdict in (
        (2.14e-6, 2e-6, Verdict.HELD),  # 7 %, and 0.14 us
        (2.16e-6, 2e-6, Verdict.MISSED),
        (20.5e-6, 20e-6, Verdict.HELD),  # 0.5 us, and 2.5 %
        (1.86e-6, 2e-6, Verdict.HELD),
        (1.84e-6, 2e-6, Verdict.MISSED),
    ):
        turn = rounds(SUBMIT, (run(submit=ours), run(submit=theirs)))
        assert compare.judged(SUBMIT, turn, {}).verdict is verdict


def test_cublas_has_a_target_but_where_it_has_instructions_of_its_own() -> None:
    turn = Round("tensor", run(tensor=40.0), run(tensor=40.0), best=run(tensor_cublas=100.0))
    for capability, verdict in (
        ("8.9", Verdict.MISSED),
        ("9.0", Verdict.NO_TARGET),
        ("10.0", Verdict.NO_TARGET),
        ("11.0", Verdict.NO_TARGET),
        ("12.0", Verdict.MISSED),
    ):
        judged = compare.judged(compare.on(capability, LIBRARY), [turn], {})
        assert judged.ratio == pytest.approx(0.4)
        assert judged.verdict is verdict


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
