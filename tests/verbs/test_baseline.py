"""``gpud baseline``: what is usual, accepted as it is now, or learnt anew."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET
from gpud.core.alerts import SHORT
from gpud.core.streams import Choice, StreamKey
from tests import serving
from tests.verbs.decisions import NOW_S, SUBMIT, UUID, alert, document, snapshot, stream
from tests.verbs.homes import Ran, called, running

if TYPE_CHECKING:
    from pathlib import Path

NAME = alert()["fingerprint"]
CALL = StreamKey(None, "cpu_call", "call")
CELLS = re.compile(r"\s{2,}")


def test_baseline_shows_what_is_usual_and_how_the_present_compares(tmp_path: Path) -> None:
    verdict = {"old_driver": "572.16", "new_driver": "576.02", "since_s": NOW_S, "samples": 12}
    new = stream(uuid=None, usual=None, slowdown=None, level=None, judged=3, unit=None)
    streams = (
        stream(level=1e-5, verdict=verdict | {"state": "no_change", "limit": 0.07}),
        stream(probe="triad", mode="triad", unit="bytes_per_second", usual=4e11, on_battery=True),
        new,
    )
    ran = called(running(tmp_path, document(streams=streams)), "baseline", "show")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    driver = "576.02: no change beyond ±7.0 %"
    learning = "learning what is usual, {} runs so far"
    assert [CELLS.split(line.strip()) for line in lines[1:]] == [
        ["GPU 0", "launch submit", "12.4 µs", "12 % slower than usual", "1,200", driver],
        ["GPU 0, on battery", "triad", "400 GB/s", learning.format("1,200"), "1,200"],
        ["CPU", "launch submit", "-", learning.format("3 of 8"), "3"],
    ]


def test_baselines_are_chosen_by_gpu_probe_and_mode(tmp_path: Path) -> None:
    streams = [stream(), stream(mode="graph"), stream(uuid=None, probe="cpu_call")]
    running(tmp_path, document(streams=streams))
    for words, modes in (
        ("--mode graph", [("launch", "graph")]),
        ("--gpu gpu-1 --probe launch", [("launch", "submit"), ("launch", "graph")]),
        ("--gpu 0 --mode graph", [("launch", "graph")]),
        ("--gpu cpu", [("cpu_call", "submit")]),
    ):
        ran = called(tmp_path, "baseline", "show", *words.split(), "--json")
        assert [(s["probe"], s["mode"]) for s in json.loads(ran.out)["streams"]] == modes
    wrong = called(tmp_path, "baseline", "show", "--probe", "lunch")
    assert (wrong.code, "launch submit, launch graph, cpu_call submit" in wrong.err) == (2, True)
    wrong = called(tmp_path, "baseline", "show", "--gpu", "3")
    assert (wrong.code, "there is no GPU 3" in wrong.err, "\x1b" in wrong.err) == (2, True, False)


def test_streams_of_an_alert_a_probe_or_everything_are_accepted(tmp_path: Path) -> None:
    table: list[tuple[str, Choice]] = [
        (NAME[:6], Choice(UUID, "launch", "submit")),
        ("--probe launch --mode submit", Choice(None, "launch", "submit")),
        ("--probe launch --gpu 0", Choice(UUID, "launch")),
        (f"{NAME[:8]} --mode submit", Choice(UUID, "launch", "submit")),
        ("--all", Choice()),
    ]
    with serving.agent(tmp_path, snapshot()) as decisions:
        for words, choice in table:
            ran = called(tmp_path, "baseline", "accept", *words.split())
            assert ran == Ran(0, f"the current speed is usual from now on: {choice}\n", "")
    assert decisions.made == [(BASELINE_ACCEPTED, choice) for _, choice in table]
    assert set(decisions.uids) == {os.geteuid()}


@pytest.mark.parametrize(
    ("words", "message", "fix"),
    [
        (["lunch"], "no alert lunch fires\n", f"one of: {NAME}; "),
        ([""], "no alert  fires\n", f"one of: {NAME}; "),
        (["launch", "submit"], "unrecognized arguments: submit\n", "accept --help"),
        (["--probe", "lunch"], "no figures of lunch\n", "one of: cpu_call call, launch submit; "),
        (["--gpu", "7"], "there is no GPU 7\n", f"one of: 0 RTX ({UUID}), cpu\n"),
        (["--gpu", "GPU-2"], "there is no GPU GPU-2\n", f"one of: 0 RTX ({UUID}), cpu\n"),
        (["--gpu", "cpu", "--probe", "launch"], "launch on the CPU\n", "launch submit; "),
        ([NAME[:SHORT], "--gpu", "cpu"], "has no figures of everything on the CPU", ""),
        ([], "needs to know what: an alert's ID, --probe, --gpu or --all", "alerts` lists"),
        (["--all", NAME], "names and --all exclude each other", "leave out --all"),
    ],
)
def test_name_that_fits_nothing_accepts_nothing_and_is_refused_with_what_there_is(
    tmp_path: Path, words: list[str], message: str, fix: str
) -> None:
    with serving.agent(tmp_path, snapshot(SUBMIT, CALL)) as decisions:
        ran = called(tmp_path, "baseline", "accept", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert fix in ran.err
    assert decisions.made == []


def test_reset_needs_a_choice(tmp_path: Path) -> None:
    with serving.agent(tmp_path, snapshot()) as decisions:
        for words in ((), ("--all", "--probe", "launch")):
            refused = called(tmp_path, "baseline", "reset", *words)
            assert (refused.code, "or give --all for everything" in refused.err) == (2, True)
        assert decisions.made == []
        ran = called(tmp_path, "baseline", "reset", "--all")
        assert (ran.code, ran.out) == (0, "to be learnt anew: everything\n")
        assert called(tmp_path, "baseline", "reset", "--mode", "submit").code == 0
    expected = [Choice(), Choice(mode="submit")]
    assert decisions.made == [(BASELINE_RESET, choice) for choice in expected]
