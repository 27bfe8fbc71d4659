"""``gpud probe``: the arithmetic of its outcome, the text, and probes that really run."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent.measure.session import chosen
from gpud.child import summary
from gpud.child.probes import cpu_call
from gpud.core.errors import ConfigError
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
from gpud.requests import NotRunLine, RanLine, Usual
from gpud.verbs.probe_outcome import ProbeOutcome
from tests import histories
from tests.standins.build import build_libcuda
from tests.verbs.homes import called, configured, started

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Device(0, "GPU-aaaa-1", "RTX \x1b[2J4070", "0000:01:00.0", "8.9", 46, 1, 1)
SECOND = Device(1, "GPU-aabb-2", "RTX 2000 Ada", "0000:02:00.0", "8.9", 22, 1, 1)
WSL2 = "6.6.87.2-microsoft-standard-WSL2"
HUNG = Failure(Reason.HUNG, "no answer", advice="wsl --shutdown")


def copying(folder: Path, gpus: int, kernel: str) -> str:
    """Give the settings of a machine with this kernel, where CUDA lists so many GPUs."""
    library = build_libcuda(folder / "cuda", f"devices {gpus}")
    release = folder / "root/proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text(kernel)
    return f"sysroot = '{folder / 'root'}'\n[cuda]\nlibrary = '{library}'\n"


def sample(middle: float, *, around: float = 0.1, mode: str = "submit", n: int = 101) -> Sample:
    values = (
        [middle * (1 + around * (2 * i / (n - 1) - 1)) for i in range(n)] if n > 1 else [middle]
    )
    return summary.summarised(values, mode=mode, unit=Unit.SECONDS, with_buckets=True)


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


def outcome(*runs: RanLine, **more: object) -> ProbeOutcome:
    repeats = max((ran.repeat for ran in runs), default=1)
    made = ProbeOutcome(runs=list(runs), repeats=repeats, inventory=Inventory((FIRST, SECOND)))
    for name, value in more.items():
        setattr(made, name, value)
    return made


def text(made: ProbeOutcome) -> str:
    return "\n".join(made.lines())


@pytest.mark.parametrize(
    ("medians", "calls", "repeats", "value", "spread"),
    [
        ([10e-6], 101, 1, 10e-6, 0.16),  # p10 is 8 % below, p90 as much above
        ([9e-6, 11e-6, 10e-6], 101, 3, 10e-6, 0.2),  # of several runs: between their medians
        ([10e-6], 101, 20, 10e-6, None),  # one of several says nothing of the others
        ([1e-3], 1, 1, 1e-3, None),  # one call has none
    ],
)
def test_result_is_a_median_and_the_spread_of_calls_or_of_runs(
    medians: list[float], calls: int, repeats: int, value: float, spread: float | None
) -> None:
    runs = [launched(sample(middle, n=calls), repeat=n) for n, middle in enumerate(medians, 1)]
    made = outcome(*runs, repeats=repeats)
    (result,) = made.results()
    assert (result.runs, result.n) == (len(medians), calls * len(medians))
    assert result.value == pytest.approx(value)
    assert result.spread == (spread if spread is None else pytest.approx(spread))


def test_two_modes_of_a_distribution_are_two_figures_with_their_shares() -> None:
    results = outcome(launched(sample(1e-5)), launched(sample(2e-5), gpu=SECOND)).results()
    assert [(r.gpu, r.value, r.peaks) for r in results] == [(0, 1e-5, ()), (1, 2e-5, ())]
    double = replace(sample(9e-6), peaks=(Peak(5e-6, 0.62), Peak(12e-6, 0.38)))
    assert re.search(r"submit +5 µs 62 %, 12 µs 38 % ", text(outcome(launched(double))))


@pytest.mark.parametrize(
    ("usual", "words"),
    [
        (Usual(10e-6, 8), "+3.0 % (n 8)\n"),
        (None, "0 of 8 runs\n"),
        (Usual(1e-5, 7), "7 of 8 runs\n"),
        (Usual(0.0, 8), "the history says 0\n"),
    ],
)
def test_figure_stands_beside_its_baseline_or_the_reason_why_there_is_none(
    usual: Usual | None, words: str
) -> None:
    made = outcome(launched(sample(10.3e-6), usual=usual))
    (result,) = made.results()
    assert (result.baseline is None) is ("%" not in words)
    assert words in f"{text(made)}\n"


def test_failures_gaps_and_skips_stand_below_the_figures_each_text_and_fix_once() -> None:
    lost = Missing("graph", Reason.UNSUPPORTED, "the driver has no graphs")
    run = launched(sample(1e-5))
    report = replace(run.report, missing=(lost,), conditions={"settled": False})
    hung = [failed("launch", HUNG), failed("nbody", HUNG), failed("launch", HUNG)]
    made = outcome(RanLine(repeat=1, gpu=0, report=report), *hung)
    made.take(not_run("nbody", Skip.CHILD_RUNNING, "process 7 has the GPU"))
    assert not made.good
    shown = text(made)
    assert re.search(r"submit +10 µs", shown)
    assert "failed: launch on GPU 0, nbody on GPU 0: hung: no answer\n  fix: wsl" in shown
    assert "missing: launch graph on GPU 0: unsupported: the driver has no graphs" in shown
    assert "unsettled: launch on GPU 0: the clocks had not settled" in shown
    assert "not run: nbody on GPU 0: process 7 has the GPU\n  fix: wait" in shown
    damaged = outcome(run, run, no_history="it is \x07damaged")
    assert text(damaged).count(r"no baseline: it is \x07damaged") == 1
    absent = Failure(Reason.LIBRARY_MISSING, "libcuda.so.1: no such file", advice="install it")
    made = outcome(inventory=Inventory(failure=absent))
    words = "failed: CUDA: library_missing: libcuda.so.1: no such file\n  fix: install it"
    assert (made.good, text(made)) == (False, words)


def not_run(probe: str, skip: Skip, detail: str) -> NotRunLine:
    return NotRunLine(repeat=1, gpu=0, probe=probe, skip=skip, detail=detail, fix="wait\x1b")


def test_run_that_has_ended_is_a_line_with_each_figure_beside_its_baseline() -> None:
    made = outcome()
    ran = launched(sample(12e-6), sample(24e-6, mode="roundtrip"), usual=Usual(10e-6, 30))
    assert made.brief(ran) == "submit 12 µs +20.0 %, roundtrip 24 µs"
    assert made.brief(failed("launch", HUNG)) == "failed: hung"


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


def test_distribution_has_the_calls_of_all_repeats_and_fits_the_screen() -> None:
    made = outcome(*(launched(sample(1e-5, around=0.5), repeat=n) for n in range(1, 6)))
    assert "505 calls: p50 10 µs" in text(made)
    assert max(map(len, text(made).splitlines())) <= 80
    assert "calls:" not in text(outcome(launched(sample(1e-5, n=19))))


def test_document_is_json_with_every_run_and_the_results() -> None:
    made = outcome(*(launched(sample(1e-5), repeat=n) for n in (1, 2)), interrupted=True)
    read = json.loads(json.dumps(made.document(), allow_nan=False))
    assert (read["schema_version"], read["interrupted"], read["repeat"]) == (1, True, 2)
    assert [run["repeat"] for run in read["runs"]] == [1, 2]
    assert read["results"][0]["no_baseline"] == "0 of 8 runs"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2", "there is no GPU 2"),
        ("9" * 5000, "there is no GPU 99"),
        ("GPU-ffff", "there is no GPU GPU-ffff"),
        ("", "there is no GPU "),
        ("-1", "there is no GPU -1"),
        ("\u0661", "there is no GPU"),
        ("gpu-aa", "more than one GPU is meant by gpu-aa"),
    ],
)
def test_gpus_are_named_and_a_name_that_fits_none_or_several_lists_them(
    name: str, words: str
) -> None:
    for names, indices in {
        (): [0, 1],
        ("1", "gpu-AABB-2"): [1],
        ("GPU-aaaa",): [0],
        ("1", "0"): [1, 0],
    }.items():
        assert [device.index for device in chosen((FIRST, SECOND), names)] == indices
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        chosen((FIRST, SECOND), (name,))
    listed = r"0 RTX \x1b[2J4070 (GPU-aaaa-1), 1 RTX 2000 Ada (GPU-aabb-2)"
    assert caught.value.fix == f"one of: {listed}"


def test_probes_are_listed_without_running_any_or_taking_the_lock(tmp_path: Path) -> None:
    (tmp_path / "run/gpud/gpu.lock").mkdir(parents=True)  # nothing could open it for writing
    shown = called(tmp_path, "probe", "--list").out
    assert re.search(
        r"^nbody: cuda, large, at most \d+ s, \S+ s of it GPU time$", shown, re.MULTILINE
    )
    assert "modes: host_to_device, device_to_host" in shown
    read = json.loads(called(tmp_path, "probe", "--list", "--json").out)
    assert read["schema_version"] == 1
    names = {probe["name"] for probe in read["probes"]}
    assert {"launch", "nbody", "triad", "copy", "cpu_call", "cpu_matmul"} <= names
    one = json.loads(called(tmp_path, "probe", "--list", "--json", "nbody").out)
    assert [spec["name"] for spec in one["probes"]] == ["nbody"]


def test_probe_needs_no_running_gpud(tmp_path: Path) -> None:
    ran = started(tmp_path, "probe", "cpu_call", "--json")
    [run] = json.loads(ran.out)["runs"]
    assert (ran.code, run["failure"]) == (0, None)
    assert run["samples"][0]["median"] > 0


@pytest.mark.parametrize(("status", "usual"), [("Charging", 1e-3), ("Discharging", 2e-3)])
def test_run_on_battery_is_compared_with_those_on_battery(
    tmp_path: Path, status: str, usual: float
) -> None:
    battery = tmp_path / "root/sys/class/power_supply/BAT0"
    battery.mkdir(parents=True)
    for name, words in {"type": "Battery", "status": status}.items():
        (battery / name).write_text(f"{words}\n")
    configured(tmp_path, f"sysroot = '{tmp_path / 'root'}'\n")
    state = tmp_path / "var/lib/gpud"
    state.mkdir(parents=True)
    with histories.opened(state) as store:
        for mains, figure in ((True, 1e-3), (False, 2e-3)):
            of_then = {"probe_version": cpu_call.SPEC.version, "after.ac": mains}
            past = (sample(figure, mode="call"),)
            at_s = time.time() - 3600
            store.append([histories.made(at_s, "cpu_call", None, past, conditions=of_then)] * 8)
    ran = started(tmp_path, "probe", "cpu_call", "--json")
    (result,) = json.loads(ran.out)["results"]
    assert result["baseline"]["median"] == pytest.approx(usual)
    other = started(tmp_path, "probe", "cpu_matmul").out
    assert ("0 of 8 runs on battery\n" in other) is (usual == 2e-3)


def test_probe_that_brings_nothing_is_1_and_says_why(tmp_path: Path) -> None:
    configured(tmp_path, "[cuda]\nlibrary = '/nonexistent/libcuda.so.1'\n")
    ran = started(tmp_path, "probe", "triad")
    assert ran.code == 1
    assert "/nonexistent/libcuda.so.1: cannot open shared object file" in ran.out
    assert "fix:" in ran.out


def test_unknown_probe_is_2_with_the_list(tmp_path: Path) -> None:
    for words in (("nosuch",), ("--list", "nosuch")):
        ran = started(tmp_path, "probe", *words)
        assert ran.code == 2
        assert "there is no probe nosuch; there are: copy, cpu_call" in ran.err


@pytest.mark.parametrize(
    ("gpus", "kernel", "why"),
    [(1, "6.8.0-45-generic", "there is no second GPU"), (2, WSL2, "not on WSL2")],
)
def test_copy_between_gpus_where_there_is_none_is_2_and_says_why(
    tmp_path: Path, gpus: int, kernel: str, why: str
) -> None:
    configured(tmp_path, copying(tmp_path, gpus, kernel))
    ran = started(tmp_path, "probe", "small_peer_copy", "event")
    assert (ran.code, f"small_peer_copy copies between two GPUs: {why}" in ran.err) == (2, True)


def test_copy_to_the_next_gpu_is_measured_from_each(tmp_path: Path) -> None:
    configured(tmp_path, copying(tmp_path, 2, "6.8.0-45-generic"))
    ran = started(tmp_path, "probe", "small_peer_copy", "--json")
    runs = json.loads(ran.out)["runs"]
    assert ran.code == 0
    first, second = ((run["device"]["uuid"], run["conditions"]["peer"]) for run in runs)
    assert first == second[::-1]
