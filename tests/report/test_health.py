"""How the measuring went: failures, what was lost, pauses, what was left out."""

from __future__ import annotations

import pytest

from gpud.report import health
from gpud.report.model import Stretch
from gpud.report.rows import Run

A, B, C = (Stretch(name, 0.0, 0.0, 1) for name in ("A", "B", "C"))
FAILED = ("ptx_rejected", "no")


def run(
    at_s: float,
    failure: tuple[str, str] | None = None,
    *,
    probe: str = "launch",
    gpu: str | None = "GPU-1",
    boot: str = "boot",
    flags: tuple[str, ...] = (),
) -> Run:
    return Run(at_s, boot, probe, gpu, 0.5, failure, "A", frozenset(flags))


def lost(*told: tuple[Run, int]) -> list[tuple[str | None, str, str, int, float | None]]:
    runs, of = [one for one, _ in told], [stretch for _, stretch in told]
    found = health.lost(runs, [A, B, C], of)
    return [(one.gpu, one.old, one.new, one.failed, one.back_s) for one in found]


def test_a_probe_that_only_fails_under_a_later_driver_is_lost() -> None:
    told = [(run(1), 0), (run(2, FAILED), 1), (run(3, FAILED), 1)]
    assert lost(*told) == [("GPU-1", "A", "B", 2, None)]


def test_what_works_again_is_said_to_have_come_back() -> None:
    told = [(run(1), 0), (run(2, FAILED), 1), (run(3, FAILED), 1), (run(4), 2)]
    assert lost(*told) == [("GPU-1", "A", "B", 2, 4.0)]


@pytest.mark.parametrize(
    "told",
    [
        [(run(1, FAILED), 0), (run(2, FAILED), 1), (run(3, FAILED), 1)],  # never worked
        [(run(1), 0), (run(2, FAILED), 1)],  # once is an accident
        [(run(1), 0), (run(2, FAILED), 1), (run(3), 1), (run(4, FAILED), 1)],  # at times
        [(run(1, FAILED), 0), (run(2, FAILED), 0), (run(3), 1)],  # the new one mended it
        [(run(1, probe="triad"), 0), (run(2, FAILED), 1), (run(3, FAILED), 1)],
    ],
)
def test_what_never_worked_or_sometimes_does_is_not_lost(told: list[tuple[Run, int]]) -> None:
    assert lost(*told) == []


def test_failures_without_a_gpu_count_for_every_gpu_that_worked() -> None:
    told = [(run(1), 0), (run(1, gpu="GPU-2"), 0)]
    told += [(run(at, FAILED, gpu=None), 1) for at in (2, 3)]
    assert lost(*told) == [("GPU-1", "A", "B", 2, None), ("GPU-2", "A", "B", 2, None)]


def test_failures_are_counted_by_reason_with_the_last_words() -> None:
    told = [run(1, ("hung", "x")), run(2, ("hung", "y")), run(3, FAILED), run(4)]
    first, second = health.failures(told)
    assert (first.reason, first.count, first.last_s, first.detail) == ("hung", 2, 2, "y")
    assert (second.reason, second.count) == ("ptx_rejected", 1)


def test_shares_of_marked_runs_are_of_good_runs_and_by_driver() -> None:
    told = [run(1, flags=("busy",)), run(2), run(3, FAILED, flags=("low",)), run(4, flags=("low",))]
    first, second = health.marked(told, [0, 0, 0, 1])
    assert (first.runs, first.busy, first.low) == (2, 0.5, 0.0)
    assert (second.runs, second.busy, second.low) == (1, 0.0, 1.0)


def test_a_pause_is_ten_minutes_and_five_usual_intervals() -> None:
    minutes = [60.0 * at for at in range(30)]
    told = [run(at_s) for at_s in minutes] + [run(minutes[-1] + 601, boot="next")]
    (gap,) = health.gaps(told)
    assert (gap.since_s, gap.until_s, gap.booted) == (minutes[-1], minutes[-1] + 601, True)
    assert health.gaps(told[:-1]) == ()
    nightly = [run(86400.0 * at) for at in range(30)]
    assert health.gaps(nightly) == ()


def test_a_clock_that_was_set_back_makes_no_pause_and_no_negative_time() -> None:
    told = [run(60.0 * at) for at in range(20)] + [run(60.0 * at - 86400) for at in range(20)]
    assert health.gaps(told) == ()
    assert health.awake_s(told, ()) > 0
    assert all(0 < one.runs <= one.due for one in health.left(told, health.awake_s(told, ())))


def test_what_was_left_out_shows_in_the_number_of_runs() -> None:
    every = [run(60.0 * at, probe="cpu_call", gpu=None) for at in range(101)]
    some = [run(60.0 * at) for at in range(101) if not 50 <= at < 75]
    found = {one.probe: one for one in health.left([*every, *some], 6000.0)}
    assert (found["cpu_call"].runs, found["cpu_call"].due) == (101, 101)
    assert (found["launch"].runs, found["launch"].due) == (76, 100)


def test_without_a_run_nothing_is_said() -> None:
    assert (health.gaps(()), health.left((), 0.0), health.failures(())) == ((), (), ())
    assert health.awake_s((), ()) == 0.0
