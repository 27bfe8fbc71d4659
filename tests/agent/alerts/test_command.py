"""A program of the person's own: what it gets, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

from gpud import processes
from gpud.agent.alerts.sinks.command import CommandSink
from tests.agent.alerts.telling import LOST, SLOW, context, firing, only, refusal
from tests.e2e.program import alive
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.alerts.sink import Sink

SPEAKS = """#!/usr/bin/env python3
import json, os, sys
seen = {"argv": sys.argv, "environ": dict(os.environ), "cwd": os.getcwd()}
with open(sys.argv[0] + ".seen", "w") as file:
    json.dump(seen | {"leads": os.getpgrp() == os.getpid(), "stdin": sys.stdin.read()}, file)
"""


def script(folder: Path, text: str) -> str:
    path = folder / "hook=1 $(x)"  # a name that a shell or env would take for something else
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def sink(folder: Path, *command: str, timeout_s: float = 30.0) -> Sink:
    return only("command", context(folder, f"command = {json.dumps(command)}", timeout_s=timeout_s))


def test_program_gets_its_own_arguments_the_alerts_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUD_SECRET", "s3cret")
    path = script(tmp_path, SPEAKS)
    arguments = ["", "a b", "$(touch x)", "`id`", "*", "A=B", "--", "\x1b[31m", "\u00b5"]
    asyncio.run(sink(tmp_path, path, *arguments).send(firing(LOST, SLOW)))
    seen = json.loads((tmp_path / "hook=1 $(x).seen").read_text())
    assert seen["argv"] == [path, *arguments]
    assert seen["environ"].keys() <= {"PATH", "LANG", "LC_CTYPE", "PWD", "SHLVL", "_"}
    assert (seen["cwd"], seen["leads"]) == ("/", True)
    document = json.loads(seen["stdin"])
    assert document["version"] == "4"
    assert [alert["labels"]["alertname"] for alert in document["alerts"]] == [LOST.name, SLOW.name]


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("#!/bin/sh\necho boo >&2; exit 3\n", "failed", "ended with 3"),
        ("#!/bin/sh\nkill -9 $$\n", "failed", "ended by SIGKILL"),
        ("#!/nonexistent/interpreter\n", "cannot_execute", "is not there"),
        ("#!/bin/sh\ncat /dev/zero\n", "too_talkative", "said more"),
    ],
)
def test_failure_is_reported_and_output_shown_by_the_test_alone(
    text: str, reason: str, words: str, tmp_path: Path
) -> None:
    error = refusal(sink(tmp_path, script(tmp_path, text)), firing(SLOW))
    assert error.reason == reason
    assert words in str(error)
    assert "boo" not in f"{error} {error.fix}"
    assert "gpud alerts test command" in (error.fix or "")
    if "boo" in text:
        assert error.output == "boo"


def test_program_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    for path in ("/nonexistent/program", str(tmp_path)):
        error = refusal(sink(tmp_path, path), firing(SLOW))
        assert error.reason == "cannot_execute"
        assert (error.fix or "").startswith("correct the path in [alerts] command")


def test_program_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        f"#!/bin/sh\necho waiting for the server\nsleep 600 &\necho $$ $! >{pids}\n"
        "trap '' TERM\nsleep 600\nwait\n"
    )
    path = script(tmp_path, text)

    error = refusal(sink(tmp_path, path, timeout_s=3.0), firing(SLOW))
    assert (error.reason, error.output) == ("timed_out", "waiting for the server")
    for pid in map(int, pids.read_text().split()):
        until(lambda pid=pid: not alive(pid), f"the end of {pid}")  # type: ignore[misc]


def test_program_that_was_killed_and_stays_keeps_the_next_from_starting(tmp_path: Path) -> None:
    made = sink(tmp_path, script(tmp_path, SPEAKS))
    assert isinstance(made, CommandSink)
    made._program._last = processes.ref(os.getpid())
    error = refusal(made, firing(SLOW))
    assert error.reason == "stuck"
    assert "is still there (state R" in str(error)
    assert not (tmp_path / "hook=1 $(x).seen").exists()
