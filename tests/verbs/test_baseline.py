"""``gpud baseline``: what is usual, accepted as it is now, or learnt anew."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.regression.commands import BASELINE_ACCEPTED, BASELINE_RESET, Choice
from gpud.core.alerts import SHORT
from gpud.core.sample import StreamKey
from tests import serving
from tests.terminals import window
from tests.verbs.decisions import (
    NOW_S,
    SUBMIT,
    UUID,
    alert,
    document,
    snapshot,
    stream,
)
from tests.verbs.homes import called, gpud, running

if TYPE_CHECKING:
    from pathlib import Path

NAME = alert()["fingerprint"]
CALL = StreamKey(None, "cpu_call", "call")
CELLS = re.compile(r"\s{2,}")


def shown(home: Path, *streams: dict[str, Any]) -> list[str]:
    ran = called(running(home, document(streams=streams)), "baseline", "show")
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def test_baseline_shows_what_is_usual_and_how_the_present_compares(tmp_path: Path) -> None:
    rate = stream(probe="triad", mode="triad", unit="bytes_per_second", usual=4e11, slowdown=1.25)
    new = stream(uuid=None, usual=None, slowdown=None, judged=3, unit=None)
    lines = shown(tmp_path, stream(), stream(version=2), rate, new)
    assert [CELLS.split(line.strip()) for line in lines if "usual" not in line] == [
        ["GPU 0"],
        ["launch submit v1", "12.4 µs", "13.9 µs", "12 % slower", "1,200"],
        ["launch submit v2", "12.4 µs", "13.9 µs", "12 % slower", "1,200"],
        ["triad", "400 GB/s", "320 GB/s", "25 % slower", "1,200"],
        ["CPU"],
        ["launch submit v1", "-", "-", "-", "3"],
    ]


def test_baseline_of_the_first_minutes_says_how_many_runs_are_needed(tmp_path: Path) -> None:
    learning = {"usual": None, "slowdown": None, "unit": None, "level": None}
    streams = (stream(judged=2, **learning), stream(mode="roundtrip", judged=5, **learning))
    (line,) = shown(tmp_path, *streams)
    assert line.strip() == (
        "What is usual is still being learned: 5 of 8 runs so far, of launch roundtrip; "
        "the first 3 after a start do not count."
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "learning"}, "learning, samples so far are too few"),
        ({"state": "undecided", "limit": 0.08}, "undecided, samples so far are too few"),
        ({"state": "regressed"}, "slower, over or accepted"),
        ({"state": "regressed", "open": True}, "slower"),
        ({"state": "no_change", "limit": 0.07}, "no change beyond ±7.0 %"),
        ({"state": "none"}, "no verdict"),
    ],
)
def test_baseline_shows_the_verdict_on_the_latest_driver(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    opened = [{"kind": "driver"}] if changes.pop("open", False) else []
    verdict = {"old_driver": "572.16", "new_driver": "576.02", "since_s": NOW_S, "samples": 12}
    lines = shown(tmp_path, stream(open=opened, verdict={**verdict, **changes}))
    assert lines[-1].endswith(f" 576.02 since 2025-10-09: {words}")


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


def test_alert_a_probe_or_everything_is_accepted_by_name(tmp_path: Path) -> None:
    table: list[tuple[str, str, Choice]] = [
        (NAME[:6], "GPU 0 launch submit", Choice(UUID, "launch", "submit")),
        ("launch submit", "launch submit", Choice(None, "launch", "submit")),
        ("launch --gpu 0", "GPU 0 launch", Choice(UUID, "launch")),
        ("--probe launch", "launch", Choice(None, "launch")),
        (f"{NAME[:8]} --mode submit", "GPU 0 launch submit", Choice(UUID, "launch", "submit")),
        ("--all", "everything", Choice()),
    ]
    with serving.agent(tmp_path, snapshot(), published=document()) as decisions:
        for words, names, _ in table:
            ran = called(tmp_path, "baseline", "accept", *words.split())
            assert (ran.code, ran.err) == (0, "")
            assert ran.out == (
                f"Accepted the current speed as usual for: {names}\n"
                "  nothing of it is slower than usual\n"
            )
    assert decisions.made == [(BASELINE_ACCEPTED, choice) for _, _, choice in table]
    assert set(decisions.uids) == {os.geteuid()}


@pytest.mark.parametrize(
    ("words", "code", "message", "fix"),
    [
        (["lunch"], 2, "no alert that fires and no probe is called lunch\n", "launch submit"),
        (["launch", "sumbit"], 2, "no probe is called launch sumbit\n", "launch submit"),
        (["--probe", "lunch"], 2, "a probe lunch; did you mean launch?\n", "launch\n"),
        (["--mode", "submits"], 2, "did you mean submit?\n", "call, submit\n"),
        (["--gpu", "7"], 2, "there is no GPU 7\n", "one of: 0 (RTX)\n"),
        (["--gpu", "GPU-2"], 2, "no figures of GPU-2\n", f"one of: {UUID}, cpu\n"),
        (["--gpu", "cpu", "--probe", "launch"], 2, "launch on the CPU\n", "says what there is"),
        (["x", "y", "z"], 2, "is called x y z\n", "launch submit"),
        ([""], 2, "is empty\n", " alerts` lists the alerts with their IDs\n"),
        (["launch", "--probe", "launch"], 2, "give a probe and its mode once", ""),
        ([NAME[:SHORT], "--gpu", "cpu"], 2, "has no figures of everything on the CPU", ""),
        ([], 2, "needs to know what: an alert's ID, a probe, or --all", "alerts` lists"),
        (["--all", "launch"], 2, "names and --all exclude each other", "leave out --all"),
    ],
)
def test_name_that_fits_nothing_accepts_nothing_and_is_refused_with_what_there_is(
    tmp_path: Path, words: list[str], code: int, message: str, fix: str
) -> None:
    with serving.agent(tmp_path, snapshot(SUBMIT, CALL)) as decisions:
        ran = called(tmp_path, "baseline", "accept", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert fix in ran.err
    assert decisions.made == []


def test_accepted_streams_are_listed_in_a_pipe_and_those_still_learning(tmp_path: Path) -> None:
    slower, new = stream(open=[{"kind": "driver"}]), stream(mode="graph", usual=None, slowdown=None)
    trial = {"state": "learning", "new_driver": "576.02", "since_s": NOW_S, "samples": 2}
    on_trial = stream(mode="pipelined", usual=None, slowdown=None, verdict=trial)
    published = document(streams=[slower, new, on_trial])
    with serving.agent(tmp_path, snapshot(), published=published) as decisions:
        ran = called(tmp_path, "baseline", "accept", "--all")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Accepted the current speed as usual for: everything\n"
        "  GPU 0 launch submit: 12.4 µs -> 13.9 µs, 12 % slower\n"
        "  still learning, not accepted: GPU 0 launch graph\n"
    )
    assert decisions.made == [(BASELINE_ACCEPTED, Choice())]
    published = document(streams=[stream(usual=None, slowdown=None), new])
    with serving.agent(tmp_path, snapshot(), published=published) as decisions:
        ran = called(tmp_path, "baseline", "accept", "launch", "submit")
    assert (ran.code, ran.out) == (1, "")
    assert "what is usual is still being learnt: GPU 0 launch submit\n" in ran.err
    assert "fix: wait for more runs; `" in ran.err
    assert decisions.made == []


@pytest.mark.parametrize(("answer", "accepted"), [("y", 1), ("", 0)])
def test_streams_to_accept_are_listed_on_a_terminal_and_a_person_agrees(
    tmp_path: Path, answer: str, accepted: int
) -> None:
    slower, usual = stream(open=[{"kind": "driver"}]), stream(mode="graph", slowdown=1.0)
    published = document(streams=[slower, usual])
    with (
        serving.agent(tmp_path, snapshot(), published=published) as decisions,
        window(gpud(tmp_path, "baseline", "accept")) as terminal,
    ):
        terminal.expect(r"This accepts the current speed as usual for: everything\r\n")
        terminal.expect(r"  GPU 0 launch submit: 12\.4 µs -> 13\.9 µs, 12 % slower\r\n")
        terminal.expect(r"Accept\? \[y/N\] ")
        assert "graph" not in terminal.everything
        assert decisions.made == []
        terminal.send(f"{answer}\n")
        terminal.expect("Accepted the" if accepted else r"Nothing was accepted\.")
        assert terminal.ended() == 0
    assert [choice for _, choice in decisions.made] == [Choice()] * accepted


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
