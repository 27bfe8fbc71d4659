"""Who else is at work: the holder of the lock, and the word of the agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent import gpulock, processes
from gpud.agent.byhand import others
from gpud.core.report import ProcessRef

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = 1_700_000_000.0
OPEN: dict[str, Any] = {
    "state": "open",
    "detail": "launch hung \x1b[2J",
    "retry_s": NOW_S + 250.0,
    "fix": "wsl --shutdown\x07",
}


def said(folder: Path, standing: object, *, written_s: float = NOW_S) -> str | None:
    (folder / "agent").mkdir(exist_ok=True)
    document = {"written_s": written_s, "breaker": standing}
    (folder / "agent/agent.json").write_text(json.dumps(document))
    found = others.breaker(folder, now_s=NOW_S)
    return None if found is None else f"{found[0]} | {found[1]}"


def noted(folder: Path, process: ProcessRef, what: str) -> Path:
    lock = folder / "gpu.lock"
    fd = gpulock.opened(lock)
    gpulock.note(fd, gpulock.Holder(process, time.monotonic() + 60.0, what))
    os.close(fd)
    return lock


def test_an_open_breaker_has_its_evidence_its_rest_and_its_fix(tmp_path: Path) -> None:
    assert said(tmp_path, OPEN) == (
        r"the agent starts no GPU work (open): launch hung \x1b[2J; it tries again in 250 s"
        r" | wsl --shutdown\x07"
    )


def test_a_stuck_one_has_no_time_to_end(tmp_path: Path) -> None:
    standing = {**OPEN, "state": "stuck", "retry_s": None, "detail": None, "fix": None}
    assert said(tmp_path, standing) == "the agent starts no GPU work (stuck): a probe hung | None"


@pytest.mark.parametrize("state", ["closed", "half_open", "of a later gpud"])
def test_one_that_lets_work_through_is_no_news(tmp_path: Path, state: str) -> None:
    assert said(tmp_path, {**OPEN, "state": state}) is None


def test_the_word_of_an_agent_that_ended_an_hour_ago_counts_for_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, OPEN, written_s=NOW_S - 3600.0) is None


@pytest.mark.parametrize("standing", [None, 3, [], {}, {"state": "open"}, {**OPEN, "state": []}])
def test_what_is_no_standing_says_nothing(tmp_path: Path, standing: object) -> None:
    assert said(tmp_path, standing) is None


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "3", "\x00"])
def test_what_is_no_document_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent").mkdir()
    assert others.breaker(tmp_path, now_s=NOW_S) is None
    os.mkfifo(tmp_path / "agent/agent.json")
    assert others.breaker(tmp_path, now_s=NOW_S) is None
    (tmp_path / "agent/agent.json").unlink()
    (tmp_path / "agent/agent.json").write_text(text)
    assert others.breaker(tmp_path, now_s=NOW_S) is None


@pytest.mark.parametrize(
    ("words", "whose"),
    [
        (("-m", "gpud.agent", "--home", "/"), " of the agent, which has run for 0 s"),
        (("/usr/bin/gpud", "probe"), " of another gpud probe, which has run for 0 s"),
        (("something",), r"process \d+ \(launch on \\x1b\), which has run for 0 s"),
    ],
)
def test_the_holder_is_named_with_what_it_does_and_whose_it_is(
    tmp_path: Path, words: tuple[str, ...], whose: str
) -> None:
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", parent, child, *words]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = processes.ref(int(process.stdout.readline()))
        assert found is not None
        text = others.holder(noted(tmp_path, found, "launch on \x1b"))
        process.communicate()
    assert text.startswith(f"process {found.pid} (launch on \\x1b)")
    assert re.search(whose, text)


def test_a_line_that_names_nobody_who_lives_is_another_process(tmp_path: Path) -> None:
    assert others.holder(tmp_path / "missing") == "another process"
    lock = noted(tmp_path, ProcessRef(os.getpid(), 1), "launch")
    assert others.holder(lock) == "another process"
    os.mkfifo(tmp_path / "fifo")
    assert others.holder(tmp_path / "fifo") == "another process"
