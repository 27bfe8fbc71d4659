"""The outcome of ``gpud probe``: the arithmetic, the words and the lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gpud.agent.measure.session import chosen
from gpud.core import stats
from gpud.core.errors import ConfigError
from gpud.core.requests import NotRunLine, RanLine, Usual
from gpud.core.sample import (
    Backend,
    Device,
    Failure,
    Inventory,
    Missing,
    Peak,
    Reason,
    RunReport,
    Sample,
    Skip,
    Unit,
)
from gpud.verbs import probe_text
from gpud.verbs.outcome import Outcome

FIRST = Device(0, "GPU-aaaa-1", "RTX \x1b[2J4070", "0000:01:00.0", "8.9", 46, 1, 1)
SECOND = Device(1, "GPU-aabb-2", "RTX 2000 Ada", "0000:02:00.0", "8.9", 22, 1, 1)
HUNG = Failure(Reason.HUNG, "no answer", advice="wsl --shutdown")


def sample(middle: float, *, around: float = 0.1, mode: str = "submit", n: int = 101) -> Sample:
    values = (
        [middle * (1 + around * (2 * i / (n - 1) - 1)) for i in range(n)] if n > 1 else [middle]
    )
    return stats.summarised(values, mode=mode, unit=Unit.SECONDS, with_buckets=True)


def launched(
    *samples: Sample, gpu: Device = FIRST, repeat: int = 1, usual: Usual | None = None
) -> RanLine:
    report = RunReport(
        "launch", Backend.CUDA, gpu, samples, conditions={"probe_version": 3, "settled": True}
    )
    known = {} if usual is None else {samples[0].mode: usual}
    return RanLine(repeat=repeat, gpu=gpu.index, report=report, usual=known)


def failed(probe: str, failure: Failure, gpu: int | None = 0) -> RanLine:
    backend = Backend.CPU if gpu is None else Backend.CUDA
    return RanLine(repeat=1, gpu=gpu, report=RunReport(probe, backend, failure=failure))


def outcome(*runs: RanLine, **more: object) -> Outcome:
    repeats = max((ran.repeat for ran in runs), default=1)
    made = Outcome(runs=list(runs), repeats=repeats, inventory=Inventory((FIRST, SECOND)))
    for name, value in more.items():
        setattr(made, name, value)
    return made


def text(made: Outcome) -> str:
    return "\n".join(probe_text.lines(made))


def test_a_single_run_shows_its_median_and_the_spread_of_its_calls() -> None:
    (result,) = outcome(launched(sample(10e-6))).results()
    assert result.value == pytest.approx(10e-6)
    assert result.spread == pytest.approx(0.16)  # p10 is 8 % below, p90 as much above


def test_repeats_show_the_median_of_medians_and_the_spread_between_runs() -> None:
    runs = [launched(sample(middle), repeat=n) for n, middle in enumerate((9e-6, 11e-6, 10e-6), 1)]
    (result,) = outcome(*runs).results()
    assert (result.runs, result.n) == (3, 303)
    assert result.value == pytest.approx(10e-6)
    assert result.spread == pytest.approx(0.2)


def test_the_only_one_of_several_runs_says_nothing_of_the_spread_between_them() -> None:
    made = outcome(launched(sample(10e-6)), repeats=20)
    (result,) = made.results()
    assert result.spread is None
    assert "median of 1 runs' medians" in text(made)


def test_one_call_has_no_spread() -> None:
    (result,) = outcome(launched(sample(1e-3, n=1))).results()
    assert result.spread is None


def test_two_gpus_are_two_results() -> None:
    found = outcome(launched(sample(1e-5)), launched(sample(2e-5), gpu=SECOND)).results()
    assert [r.gpu for r in found] == [0, 1]
    assert [r.value for r in found] == pytest.approx([1e-5, 2e-5])


def test_two_modes_are_two_lines_and_no_mean() -> None:
    double = replace(sample(9e-6), peaks=(Peak(5e-6, 0.62), Peak(12e-6, 0.38)))
    made = outcome(launched(double))
    assert [(r.value, r.share) for r in made.results()] == [(5e-6, 0.62), (12e-6, 0.38)]
    drawn = text(made)
    assert re.search(r"submit \(62 %\) +5 µs .*\n +submit \(38 %\) +12 µs", drawn)
    assert "9 µs" not in drawn.partition("value:")[0]


def test_runs_that_saw_one_mode_and_runs_that_saw_two_are_told_apart() -> None:
    double = replace(sample(9e-6), peaks=(Peak(5e-6, 0.6), Peak(12e-6, 0.4)))
    other = replace(sample(9e-6), peaks=(Peak(7e-6, 0.5), Peak(14e-6, 0.5)))
    runs = [launched(each, repeat=n) for n, each in enumerate((double, sample(5e-6), other), 1)]
    found = outcome(*runs).results()
    assert [r.runs for r in found] == [1, 2, 2]
    assert [r.value for r in found] == pytest.approx([5e-6, 6e-6, 13e-6])
    assert [r.share for r in found[1:]] == pytest.approx([0.55, 0.45])
    assert found[0].share is None


def test_a_figure_stands_beside_what_is_usual() -> None:
    made = outcome(launched(sample(10.3e-6), usual=Usual(10e-6, 6)))
    (result,) = made.results()
    assert result.baseline is not None
    assert (result.baseline.median, result.baseline.n) == (10e-6, 6)
    assert result.baseline.ratio == pytest.approx(0.03)
    assert "+3.0 % (n 6)" in text(made)


@pytest.mark.parametrize(
    ("usual", "words"),
    [
        (None, "0 runs are kept, 5 are needed"),
        (Usual(1e-5, 4), "4 runs are kept, 5 are needed"),
        (Usual(0.0, 5), "the history says 0"),
    ],
)
def test_without_enough_of_a_history_there_is_a_reason_and_no_figure(
    usual: Usual | None, words: str
) -> None:
    made = outcome(launched(sample(1e-5), usual=usual))
    (result,) = made.results()
    assert (result.baseline, result.no_baseline) == (None, words)
    assert f"no baseline ({words}): launch\n" in f"{text(made)}\n"


def test_a_history_that_cannot_be_read_is_said_once() -> None:
    made = outcome(
        launched(sample(1e-5), sample(2e-5, mode="roundtrip")), no_history="it is \x07damaged"
    )
    assert text(made).count(r"no baseline: it is \x07damaged") == 1


def test_cuda_that_is_not_there_is_one_line_and_its_fix_is_told_once() -> None:
    absent = Failure(Reason.LIBRARY_MISSING, "libcuda.so.1: no such file", advice="install it")
    made = outcome(inventory=Inventory(failure=absent))
    assert (
        text(made) == "failed: CUDA: library_missing: libcuda.so.1: no such file\n  fix: install it"
    )
    assert not made.good


def test_the_same_failure_of_several_probes_is_one_line() -> None:
    made = outcome(failed("launch", HUNG), failed("nbody", HUNG), failed("launch", HUNG))
    assert "failed: launch on GPU 0, nbody on GPU 0: hung: no answer" in text(made)
    assert text(made).count("fix:") == 1


def test_a_figure_keeps_its_line_beside_a_failure() -> None:
    made = outcome(launched(sample(1e-5)), failed("triad", HUNG, gpu=1))
    assert re.search(r"submit +10 µs", text(made))
    assert "failed: triad on GPU 1: hung: no answer" in text(made)
    assert not made.good


def test_what_is_missing_or_not_run_is_said_below_the_figures() -> None:
    lost = Missing("graph", Reason.UNSUPPORTED, "the driver has no graphs")
    run = launched(sample(1e-5))
    report = replace(run.report, missing=(lost,), conditions={"settled": False})
    made = outcome(RanLine(repeat=1, gpu=0, report=report))
    made.take(not_run("nbody", Skip.CHILD_RUNNING, "process 7 has the GPU"))
    assert not made.good
    shown = text(made)
    assert "missing: launch graph on GPU 0: unsupported: the driver has no graphs" in shown
    assert "unsettled: launch on GPU 0: the clocks had not settled" in shown
    assert "not run: nbody on GPU 0: process 7 has the GPU\n  fix: wait" in shown


def not_run(probe: str, skip: Skip, detail: str) -> NotRunLine:
    return NotRunLine(repeat=1, gpu=0, probe=probe, skip=skip, detail=detail, fix="wait\x1b")


def test_no_foreign_text_reaches_the_terminal_as_it_is() -> None:
    hostile = Failure(Reason.CUDA_ERROR, "\x1b[2J\u202e", advice="\x1b]0;x\x07")
    made = outcome(
        launched(replace(sample(1e-5), mode="sub\x1bmit")),
        failed("tri\x1bad", hostile),
        refused={"bad\x1b": "\x9b2J"},
        no_history="\x1b[31m",
    )
    made.take(not_run("x\x1b", Skip.STUCK, "\x1b"))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text(made))


def test_the_histogram_has_the_calls_of_all_repeats_and_fits_the_screen() -> None:
    made = outcome(*(launched(sample(1e-5, around=0.5), repeat=n) for n in range(1, 6)))
    assert "505 calls: p50 10 µs" in text(made)
    assert max(map(len, text(made).splitlines())) <= 80


def test_a_few_calls_have_no_histogram() -> None:
    assert "calls" not in text(outcome(launched(sample(1e-5, n=19))))
    assert "20 calls" in text(outcome(launched(sample(1e-5, n=20))))


def test_the_document_is_json_with_every_run_and_the_results() -> None:
    made = outcome(*(launched(sample(1e-5), repeat=n) for n in (1, 2)), interrupted=True)
    said = json.loads(json.dumps(made.document(), allow_nan=False))
    assert (said["schema_version"], said["interrupted"], said["repeat"]) == (1, True, 2)
    assert [run["repeat"] for run in said["runs"]] == [1, 2]
    assert said["results"][0]["no_baseline"] == "0 runs are kept, 5 are needed"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), [0, 1]),
        (("1",), [1]),
        (("1", "gpu-AABB-2"), [1]),
        (("GPU-aaaa",), [0]),
        (("1", "0"), [1, 0]),
    ],
)
def test_a_gpu_is_named_by_its_index_its_uuid_or_the_beginning_of_that(
    names: tuple[str, ...], found: list[int]
) -> None:
    assert [device.index for device in chosen((FIRST, SECOND), names)] == found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2", "there is no GPU 2"),
        ("GPU-ffff", "there is no GPU GPU-ffff"),
        ("", "there is no GPU "),
        ("-1", "there is no GPU -1"),
        ("\u0661", "there is no GPU"),
        ("gpu-aa", "more than one GPU is meant by gpu-aa"),
    ],
)
def test_a_name_that_fits_no_gpu_or_several_lists_them(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        chosen((FIRST, SECOND), (name,))
    assert r"0 RTX \x1b[2J4070 GPU-aaaa-1; 1 RTX 2000 Ada GPU-aabb-2" in str(caught.value)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.034, "+3.4 %"),
        (-0.0999, "-10 %"),
        (0.0994, "+9.9 %"),
        (1.5, "+150 %"),
        (0.0004, "0.0 %"),
        (-0.0004, "0.0 %"),
    ],
)
def test_a_difference_has_its_sign_and_two_figures_or_so(ratio: float, words: str) -> None:
    assert probe_text.percent(ratio, signed=True) == words
