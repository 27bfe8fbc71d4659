"""`gpud baseline` and `gpud alerts`: what they show of a running agent, and what they write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpud.agent.regression.commands import (
    ALERT_ACKNOWLEDGED,
    BASELINE_ACCEPTED,
    BASELINE_RESET,
    Choice,
)
from gpud.agent.regression.detector import Detector, Direction, Observation
from gpud.agent.state import status, statusdocument
from gpud.agent.state.gpus import KnownGpu
from gpud.agent.state.snapshot import Expected, Snapshot
from gpud.core.alerts import DRIVER_REGRESSION, SHORT, Alert, Cause, Evidence, Severity
from gpud.core.clock import Instant
from gpud.core.errors import GpudError
from gpud.core.proc import start_ticks
from gpud.core.sample import StreamKey, Unit
from gpud.show.document import read
from gpud.verbs import judgement
from tests import serving
from tests.events import made
from tests.term.windows import gpud as command
from tests.term.windows import window

UUID = "GPU-11111111-aaaa"
SUBMIT = StreamKey(UUID, "launch", "submit")
HOSTILE = "\x1b[2J\u202e<b>"
NOW_S = 1_760_000_000.0


def stream(**changes: Any) -> dict[str, Any]:
    """One stream as the status document has it."""
    return {
        "gpu": 0,
        "uuid": UUID,
        "probe": "launch",
        "mode": "submit",
        "version": 1,
        "on_battery": False,
        "unit": "seconds",
        "usual": 12.4e-6,
        "slowdown": 1.12,
        "judged": 1200,
        "open": [],
        "verdict": None,
        **changes,
    }


def made_alert(begun: str = "572.16") -> Alert:
    evidence = Evidence(
        StreamKey(UUID, "launch", "submit"),
        Unit.SECONDS,
        "driver",
        before=12.4e-6,
        after=13.9e-6,
        slowdown=1.121,
        low=1.102,
        high=1.139,
        samples=25,
        reference=1000,
        since_s=NOW_S,
        seq=7,
    )
    return Alert(
        DRIVER_REGRESSION,
        Severity.WARNING,
        {"old": begun, "new": "576.02"},
        f"submission latency +12 % since driver {begun} -> 576.02",
        "",
        NOW_S,
        NOW_S,
        evidence=(evidence,),
        causes=(Cause("driver", begun, "576.02"),),
        fix="roll the driver back",
    )


def alert(begun: str = "572.16", **changes: Any) -> dict[str, Any]:
    """One alert as the status document has it."""
    return {**msgspec.to_builtins(statusdocument.alert(made_alert(begun))), **changes}


def document(**parts: Any) -> dict[str, Any]:
    gpus = {UUID: {"number": 0, "name": f"RTX {HOSTILE}"}}
    return {"schema_version": 1, "gpus": gpus, "streams": [], "alerts": [], **parts}


def baselines(*streams: dict[str, Any]) -> list[str]:
    return judgement.baseline_lines((told := read(document(streams=streams))).streams, told)


def alert_lines(told: dict[str, Any], *, ended: bool = False) -> list[str]:
    status = read(told)
    return judgement.alert_lines(judgement.alerts(status, ended=ended), status)


@pytest.mark.parametrize(
    ("changes", "where", "cells"),
    [
        ({}, "GPU 0", "launch submit  12.4 µs  13.9 µs  12 % slower  1,200"),
        (
            {"unit": "bytes_per_second", "usual": 400e9, "slowdown": 1.25},
            "GPU 0",
            "launch submit  400 GB/s  320 GB/s  25 % slower  1,200",
        ),
        (
            {"usual": None, "slowdown": None, "judged": 3, "unit": None, "uuid": None},
            "CPU",
            "launch submit  -  -  -  3",
        ),
    ],
)
def test_a_baseline_says_what_is_normal_and_how_the_present_compares(
    changes: dict[str, Any], where: str, cells: str
) -> None:
    _, place, line = baselines(stream(**changes))
    assert (place, re.split(r"\s{2,}", line.strip())) == (f"  {where}", cells.split("  "))


def test_a_version_is_told_where_there_are_two_and_an_only_mode_is_not_named_twice() -> None:
    told = document(streams=[stream(), stream(version=2), stream(probe="triad", mode="triad")])
    _, _, *lines = baselines(*told["streams"])
    names = [line.strip().split("  ")[0] for line in lines]
    assert names == ["launch submit v1", "launch submit v2", "triad"]


def test_a_long_verdict_goes_on_below_itself() -> None:
    verdict = {"state": "none", "new_driver": "x" * 90, "since_s": NOW_S, "samples": 1}
    lines = baselines(stream(verdict=verdict))
    assert max(map(len, lines)) <= judgement.WIDTH
    assert "x" * 90 in "".join(line[-60:].strip() for line in lines[2:])


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ({"state": "learning"}, "576.02: learning, 12 runs since 2025-10-09"),
        ({"state": "undecided", "limit": 0.08}, "undecided (+-8 %), 12 runs since"),
        ({"state": "regressed"}, "576.02: regressed on 2025-10-09, over or accepted"),
        ({"state": "no_change", "limit": 0.07}, "no change seen (+-7 %) since"),
        ({"state": "none"}, "no verdict since"),
    ],
)
def test_a_baseline_says_what_is_known_of_the_latest_driver(
    verdict: dict[str, Any], words: str
) -> None:
    known = {"old_driver": "572.16", "new_driver": "576.02", "since_s": NOW_S, "samples": 12}
    told = " ".join(line.strip() for line in baselines(stream(verdict={**known, **verdict}))[1:])
    assert words in told


def test_a_driver_that_makes_a_stream_slower_still_is_said_to() -> None:
    verdict = {"state": "regressed", "old_driver": "572.16", "new_driver": "576.02"}
    known = {**verdict, "since_s": NOW_S, "samples": 12}
    [_, _, line] = baselines(stream(verdict=known, open=[{"kind": "driver"}]))
    assert line.endswith("576.02: regressed since 2025-10-09")


def test_baselines_are_chosen_by_gpu_probe_and_mode() -> None:
    told = document(streams=[stream(), stream(mode="graph"), stream(uuid=None, probe="cpu_call")])

    def modes(*words: str | None) -> list[tuple[str, str]]:
        return [(one.probe, one.mode) for one in judgement.chosen(read(told), *words)]

    assert modes(None, None, "graph") == [("launch", "graph")]
    assert modes("gpu-1", "launch", None) == [("launch", "submit"), ("launch", "graph")]
    assert modes("cpu", None, None) == [("cpu_call", "submit")]
    with pytest.raises(GpudError, match="nothing") as caught:
        modes(None, "lunch", None)
    assert "launch submit, launch graph, cpu_call submit" in (caught.value.fix or "")


def test_an_alert_is_shown_with_evidence_cause_fix_and_what_to_do() -> None:
    told = document(alerts=[alert()])
    shown = "\n".join(alert_lines(told))
    name = alert()["fingerprint"][:SHORT]
    for words in (
        "1 alert fires",
        f"{name}  GpudDriverRegression, warning, since 2025-10-09",
        "submission latency +12 % since driver 572.16 -> 576.02",
        "GPU 0 launch submit: 12.4 µs -> 13.9 µs, 12 % slower (10.2 to 13.9 %), 25 samples",
        "because: driver 572.16 -> 576.02",
        "fix: roll the driver back",
        f"gpud alerts ack {name}",
        "gpud baseline accept",
    ):
        assert words in shown


def test_an_alert_and_what_it_says_have_one_beginning_in_one_time_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    utc = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(NOW_S))
    told = document(alerts=[alert(summary=f"slower since {utc}", starts_s=NOW_S + 1800)])
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        local = time.strftime("%Y-%m-%d %H:%M", time.localtime(NOW_S))
        shown = "\n".join(alert_lines(told))
    time.tzset()
    assert f"warning, since {local}" in shown
    assert f"slower since {local}" in shown
    assert "UTC" not in shown


def test_acknowledged_and_ended_alerts_are_said_to_be_so_and_ask_for_nothing() -> None:
    told = document(
        alerts=[
            alert("1", ends_s=NOW_S + 60, starts_s=NOW_S + 30),
            alert("2", acknowledged_s=NOW_S + 90),
        ]
    )
    firing = judgement.alerts(read(told), ended=False)
    assert [one.causes[0].old for one in firing] == ["2"]
    every = judgement.alerts(read(told), ended=True)
    assert [one.causes[0].old for one in every] == ["2", "1"]
    shown = "\n".join(alert_lines(told, ended=True))
    assert "acknowledged 2025-10-09" in shown
    assert "ended 2025-10-09" in shown
    assert "gpud alerts ack" not in shown


def test_fingerprints_that_begin_alike_are_shown_whole() -> None:
    alike = ["0123456789abcdef", "0123456700000000", "ff00000000000000"]
    told = document(alerts=[alert(fingerprint=one) for one in alike])
    shown = "\n".join(alert_lines(told))
    assert "  0123456789abcdef  " in shown
    assert "  0123456700000000  " in shown
    assert "  ff000000  " in shown


def test_whatever_is_foreign_is_shown_harmless_and_within_the_width() -> None:
    told = document(
        alerts=[alert(summary=HOSTILE * 40, fix=HOSTILE, severity=HOSTILE)],
        streams=[stream(mode=HOSTILE, probe="x" * 200)],
    )
    lines = alert_lines(told, ended=True)
    lines += baselines(*told["streams"])
    assert not any(character in "".join(lines) for character in "\x1b\u202e")
    assert max(map(len, lines)) <= judgement.WIDTH


def gpud(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "gpud", "--home", str(home), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
    )


def running(home: Path, told: dict[str, Any]) -> Path:
    """Make a tree in which this test's own process passes for the supervisor."""
    run = home / "run/gpud"
    run.mkdir(parents=True)
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    (run / "root.pid").write_text(f"{os.getpid()} {ticks}")
    (run / "agent.json").write_text(json.dumps(told))
    return home


def known(*keys: StreamKey) -> Snapshot:
    """What an agent knows of: these streams, one GPU, and an alert about the first of them."""
    standing = Detector(Direction.LOWER).standing()
    return made(
        "1",
        0.0,
        gpus={UUID: KnownGpu(0, "RTX", "0000:01:00.0", cuda=True)},
        streams=dict.fromkeys(keys or (SUBMIT,), standing),
        alerts=(made_alert(),),
    )


@pytest.mark.parametrize("words", [("alerts",), ("baseline", "show")])
def test_without_a_running_gpud_nothing_is_shown_and_that_is_3(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert gpud(tmp_path, *words).returncode == 3
    ran = gpud(tmp_path, *words, "--json")
    assert (ran.returncode, json.loads(ran.stdout)["state"]) == (3, "not_running")


def test_alerts_are_1_while_something_fires_and_0_else(tmp_path: Path) -> None:
    over = alert("1", ends_s=NOW_S + 60)
    home = running(tmp_path, document(alerts=[alert(), over]))
    ran = gpud(home, "alerts", "--json")
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["schema_version"], len(told["alerts"])) == (1, 1, 1)
    every = gpud(home, "alerts", "--all", "--json")
    assert (every.returncode, len(json.loads(every.stdout)["alerts"])) == (1, 2)
    (home / "run/gpud/agent.json").write_text(json.dumps(document(alerts=[over])))
    ran = gpud(home, "alerts")
    assert (ran.returncode, ran.stdout) == (0, "no alert fires\n")


@pytest.mark.parametrize(
    ("seen_s", "ended_s", "code", "words"),
    [
        (None, None, 1, ": slower, 1 alert since "),
        (NOW_S, None, 0, ": ok since "),
        (None, NOW_S, 0, ": ok since "),
    ],
    ids=["fires", "acknowledged", "ended"],
)
def test_what_fires_and_nobody_has_seen_is_a_problem_for_gpud_status_too(
    tmp_path: Path, seen_s: float | None, ended_s: float | None, code: int, words: str
) -> None:
    one = alert(ends_s=ended_s, firing=ended_s is None, acknowledged_s=seen_s)
    whole = status.document(made("0.1.0", NOW_S), now=Instant(NOW_S, 0.0))
    home = running(tmp_path, {**whole, "state": "ok", "alerts": [one]})
    ran = gpud(home, "status")
    assert ran.returncode == code
    assert words in ran.stdout


def test_baselines_are_shown_as_one_document_too(tmp_path: Path) -> None:
    home = running(tmp_path, document(streams=[stream(), stream(mode="graph")]))
    ran = gpud(home, "baseline", "show", "--gpu", "0", "--mode", "graph", "--json")
    assert ran.returncode == 0
    assert [one["mode"] for one in json.loads(ran.stdout)["streams"]] == ["graph"]
    wrong = gpud(home, "baseline", "show", "--gpu", "3")
    assert (wrong.returncode, "there is no GPU 3" in wrong.stderr) == (1, True)
    assert "\x1b" not in wrong.stderr


def test_an_alert_a_probe_or_everything_is_accepted_by_name(tmp_path: Path) -> None:
    whole = alert()["fingerprint"]
    with serving.agent(tmp_path, known(), published=document()) as decisions:
        for words, names in (
            ((whole[:6],), "GPU 0 launch submit"),
            (("launch", "submit"), "launch submit"),
            (("launch", "--gpu", "0"), "GPU 0 launch"),
            (("--probe", "launch"), "launch"),
            ((whole[:8], "--mode", "submit"), "GPU 0 launch submit"),
            (("--all",), "everything"),
        ):
            ran = gpud(tmp_path, "baseline", "accept", *words)
            assert (ran.returncode, ran.stderr) == (0, "")
            assert ran.stdout == (
                f"Accepted the current speed as normal for: {names}\n"
                "  nothing of it is slower than usual\n"
            )
    assert [choice for _, choice in decisions.made] == [
        Choice(UUID, "launch", "submit"),
        Choice(None, "launch", "submit"),
        Choice(UUID, "launch"),
        Choice(None, "launch"),
        Choice(UUID, "launch", "submit"),
        Choice(),
    ]
    assert {kind for kind, _ in decisions.made} == {BASELINE_ACCEPTED}
    assert set(decisions.uids) == {os.geteuid()}


@pytest.mark.parametrize(
    ("words", "code", "message", "fix"),
    [
        (("lunch",), 2, "no alert that fires and no probe is called lunch\n", "launch submit"),
        (("launch", "sumbit"), 2, "no probe is called launch sumbit\n", "launch submit"),
        (("--probe", "lunch"), 2, "a probe lunch; did you mean launch?\n", "launch\n"),
        (("--mode", "submits"), 2, "did you mean submit?\n", "call, submit\n"),
        (("--gpu", "7"), 1, "there is no GPU 7\n", "one of: 0 (RTX)\n"),
        (("--gpu", "GPU-2"), 2, "no figures of GPU-2\n", f"one of: {UUID}, cpu\n"),
        (
            ("--gpu", "cpu", "--probe", "launch"),
            2,
            "launch on the CPU\n",
            " baseline show` says what there is",
        ),
        (("x", "y", "z"), 2, "is called x y z\n", "launch submit"),
        (("",), 2, "is empty\n", " alerts` lists the alerts with their IDs\n"),
        (("launch", "--probe", "launch"), 2, "give a probe and its mode once", ""),
    ],
)
def test_what_does_not_exist_is_not_accepted_and_what_there_is_is_named(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str, fix: str
) -> None:
    keys = SUBMIT, StreamKey(None, "cpu_call", "call")
    with serving.agent(tmp_path, known(*keys)) as decisions:
        ran = gpud(tmp_path, "baseline", "accept", *words)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert message in ran.stderr
    assert fix in ran.stderr
    assert decisions.made == []


def test_alert_without_figures_of_the_chosen_gpu_is_named(tmp_path: Path) -> None:
    whole = alert()["fingerprint"]
    with serving.agent(tmp_path, known(SUBMIT, StreamKey(None, "cpu_call", "call"))) as decisions:
        ran = gpud(tmp_path, "baseline", "accept", whole[:SHORT], "--gpu", "cpu")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"the alert {whole[:SHORT]} has no figures of everything on the CPU" in ran.stderr
    assert decisions.made == []


def test_nothing_is_accepted_in_a_pipe_without_a_name(tmp_path: Path) -> None:
    with serving.agent(tmp_path, known()) as decisions:
        for words in ((), ("--all", "launch")):
            ran = gpud(tmp_path, "baseline", "accept", *words)
            assert (ran.returncode, ran.stdout) == (2, "")
            assert "--all" in ran.stderr
    assert decisions.made == []


def test_in_a_pipe_what_was_accepted_is_listed_and_what_is_still_learning(tmp_path: Path) -> None:
    slower, new = stream(open=[{"kind": "driver"}]), stream(mode="graph", usual=None, slowdown=None)
    trial = {"state": "learning", "new_driver": "576.02", "since_s": NOW_S, "samples": 2}
    on_trial = stream(mode="pipelined", usual=None, slowdown=None, verdict=trial)
    published = document(streams=[slower, new, on_trial])
    with serving.agent(tmp_path, known(), published=published) as decisions:
        ran = gpud(tmp_path, "baseline", "accept", "--all")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "Accepted the current speed as normal for: everything\n"
        "  GPU 0 launch submit: 12.4 µs -> 13.9 µs, 12 % slower\n"
        "  still learning, not accepted: GPU 0 launch graph\n"
    )
    assert decisions.made == [(BASELINE_ACCEPTED, Choice())]


def test_nothing_is_accepted_where_everything_is_still_learning(tmp_path: Path) -> None:
    new = stream(usual=None, slowdown=None)
    published = document(streams=[new, stream(mode="graph")])
    with serving.agent(tmp_path, known(), published=published) as decisions:
        ran = gpud(tmp_path, "baseline", "accept", "launch", "submit")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "what is usual is still being learnt: GPU 0 launch submit\n" in ran.stderr
    assert "fix: wait for more runs; `" in ran.stderr
    assert decisions.made == []


@pytest.mark.parametrize(("answer", "accepted"), [("y", 1), ("n", 0), ("", 0)])
def test_on_a_terminal_what_will_be_accepted_is_listed_and_asked(
    tmp_path: Path, answer: str, accepted: int
) -> None:
    slower, usual = stream(open=[{"kind": "driver"}]), stream(mode="graph", slowdown=1.0)
    published = document(streams=[slower, usual])
    with (
        serving.agent(tmp_path, known(), published=published) as decisions,
        window(command(tmp_path, "baseline", "accept")) as shown,
    ):
        shown.expect(r"This accepts the current speed as normal for: everything\r\n")
        shown.expect(r"  GPU 0 launch submit: 12\.4 µs -> 13\.9 µs, 12 % slower\r\n")
        shown.expect(r"Accept\? \[y/N\] ")
        assert "graph" not in shown.everything
        assert decisions.made == []
        shown.send(f"{answer}\n")
        shown.expect("Accepted the" if accepted else r"Nothing was accepted\.")
        assert shown.ended() == 0
    assert [choice for _, choice in decisions.made] == [Choice()] * accepted


def test_the_hint_below_the_alerts_names_the_alert() -> None:
    told = document(alerts=[alert()])
    shown = "\n".join(alert_lines(told))
    assert f"it is normal now: gpud baseline accept {alert()['fingerprint'][:8]}" in shown


def test_learning_anew_needs_a_choice(tmp_path: Path) -> None:
    with serving.agent(tmp_path, known()) as decisions:
        for words in ((), ("--all", "--probe", "launch")):
            refused = gpud(tmp_path, "baseline", "reset", *words)
            assert refused.returncode == 2
            assert re.search(r"^  fix: .*--all", refused.stderr, re.MULTILINE)
        assert decisions.made == []
        ran = gpud(tmp_path, "baseline", "reset", "--all")
        assert (ran.returncode, ran.stdout) == (0, "to be learnt anew: everything\n")
        assert gpud(tmp_path, "baseline", "reset", "--mode", "submit").returncode == 0
    assert decisions.made == [
        (BASELINE_RESET, Choice()),
        (BASELINE_RESET, Choice(mode="submit")),
    ]


def test_an_alert_is_acknowledged_by_the_beginning_of_its_fingerprint(tmp_path: Path) -> None:
    whole = alert()["fingerprint"]
    with serving.agent(tmp_path, known()) as decisions:
        ran = gpud(tmp_path, "alerts", "ack", whole[:SHORT].upper())
        assert (ran.returncode, ran.stdout) == (0, f"{whole} is acknowledged: no more reminders\n")
        for words in ("nonsense", ""):
            wrong = gpud(tmp_path, "alerts", "ack", words)
            assert (wrong.returncode, f"one of: {whole}" in wrong.stderr) == (2, True)
    assert decisions.made == [(ALERT_ACKNOWLEDGED, whole)]


def test_a_gpu_is_forgotten_by_its_uuid_or_with_all_others(tmp_path: Path) -> None:
    expected = {uuid: Expected(f"card {uuid}") for uuid in ("GPU-a", "GPU-b")}
    with serving.agent(tmp_path, made("1", 0.0, expected=expected)) as decisions:
        refused = gpud(tmp_path, "gpus", "forget", "GPU-b", "GPU-x")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "fix: one of: GPU-a (card GPU-a); GPU-b (card GPU-b), or all\n" in refused.stderr
        ran = gpud(tmp_path, "gpus", "forget", "gpu-B")
        assert ran.stdout.startswith("card GPU-b (GPU-b) is forgotten\n")
        assert gpud(tmp_path, "gpus", "forget", "all").returncode == 0
    assert [uuid for _, uuid in decisions.made] == ["GPU-b", "GPU-a", "GPU-b"]


@pytest.mark.parametrize(
    "words",
    [
        ("baseline", "accept", "--all"),
        ("baseline", "reset", "--all"),
        ("alerts", "ack", "ab"),
        ("gpus", "forget", "all"),
    ],
)
def test_without_an_agent_nothing_is_decided_and_that_is_3(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = gpud(tmp_path, *words)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("gpud: gpud is not running\n  fix: ")
    assert ran.stderr.endswith(f"--home {tmp_path} up\n")
    assert list(tmp_path.iterdir()) == []


def test_a_sink_is_tested_without_a_running_agent(tmp_path: Path) -> None:
    (tmp_path / "var/log/gpud/agent").mkdir(parents=True)
    ran = gpud(tmp_path, "alerts", "test", "log")
    assert ran.returncode == 0
    assert ran.stdout.startswith("log: delivered to ")
    assert "GpudTest" in (tmp_path / "var/log/gpud/agent/agent.log").read_text()
    wrong = gpud(tmp_path, "alerts", "test", "pager")
    assert (wrong.returncode, "pager: no such sink" in wrong.stdout) == (2, True)


def test_what_a_real_agent_says_of_its_streams_and_alerts_is_shown() -> None:
    detector = Detector(Direction.LOWER)
    for number in range(60):
        value = 12.4e-6 * (1 + 0.001 * (number % 7))
        detector.push(Observation(NOW_S + 60.0 * number, value, "572.16"))
    key = StreamKey(UUID, "launch", "submit")
    snapshot = made(
        version="1",
        started_s=0.0,
        gpus={UUID: KnownGpu(0, "RTX", "0000:01:00.0", cuda=True)},
        streams={key: detector.standing()},
        units={key: Unit.SECONDS},
        alerts=(made_alert(),),
    )
    told = status.document(snapshot, now=Instant(NOW_S, 1.0))
    told = json.loads(json.dumps(told))
    _, place, line = baselines(*told["streams"])
    assert (place, line.split()[:3]) == ("  GPU 0", ["launch", "submit", "12.4"])
    shown = "\n".join(alert_lines(told))
    assert "because: driver 572.16 -> 576.02" in shown
