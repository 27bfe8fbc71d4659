"""Ratios and verdicts: what holds, what does not, and what is said where there is no ratio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.gpu_check import compare
from deploy.gpu_check.compare import Round, Row, Target, Verdict
from deploy.gpu_check.processes import Figure, Run, failed

SUBMIT = Row("launch", "submit", ("submit",), compare.LATENCY)
TRIAD = Row("triad", "triad", ("triad",), compare.THROUGHPUT)
COPY = Row("copy", "both", ("both", "both_best"), compare.COPY)
FREE = Row("launch", "graph", ("graph",))


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


def test_the_best_figure_counts_and_for_copies_the_best_tool() -> None:
    turn = rounds(COPY, (run(both=90.0), run(both=91.0, both_best=95.0)))
    assert compare.judged(COPY, turn, {}).ratio == pytest.approx(90 / 95)
    judged = compare.judged(COPY, turn, {"nvbandwidth": {"both": 100.0}, "cupy": {"triad": 1e9}})
    assert judged.ratio == pytest.approx(0.9)
    assert judged.best == "nvbandwidth"
    assert judged.verdict is Verdict.MISSED


@given(st.lists(st.floats(1e-9, 1e15), min_size=1, max_size=9))
def test_equal_sides_always_hold(values: list[float]) -> None:
    for row in (SUBMIT, TRIAD, COPY):
        name = row.figures[0]
        pairs = [(run(**{row.mode: value}), run(**{name: value})) for value in values]
        judged = compare.judged(row, rounds(row, *pairs), {})
        assert judged.ratio == 1
        assert judged.verdict is Verdict.HELD
