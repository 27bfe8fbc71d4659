"""Logs of the agent and the supervisor, by a process of its own: logging is configured once."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import LIMIT_S

WRITE = """
import logging, sys, structlog
from pathlib import Path
from gpud import logs
logs.configure(Path(sys.argv[1]), level=sys.argv[2])
log = structlog.get_logger()
log.debug("too_quiet")
log.info("read", name="RTX\\x1b[31m\\x9b2J\\x07\\n4070", temperature_celsius=55)
password = "correct horse"
try:
    raise ValueError("told by the driver: \\x1b]0;owned\\x07")
except ValueError:
    log.exception("went_wrong")
logging.getLogger("uvicorn.error").warning("by \\x1b[2J another library")
class Foreign(Exception):
    def __repr__(self):
        return text
text = "\\x1b]0;owned\\x07\\x9b31m\\r"
log.warning(text, error=Foreign(), many=[text], named={text: text}, **{text: 1})
print("still here")
"""


def write(file: Path, level: str = "info", stderr: int = subprocess.PIPE) -> tuple[str, str]:
    """Log a few lines; gives what went to stdout and to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(file), level],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
        timeout=LIMIT_S,
        cwd=Path(__file__).parents[1],
    )
    return done.stdout, done.stderr


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def control_characters(text: str) -> set[str]:
    return {c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)}


def test_each_line_of_the_file_is_one_json_document_with_the_traceback(tmp_path: Path) -> None:
    file = tmp_path / "agent.log"
    _, console = write(file)
    read, wrong, foreign, _ = lines(file)
    assert (read["event"], read["level"], read["temperature_celsius"]) == ("read", "info", 55)
    assert read["name"] == "RTX\x1b[31m\x9b2J\x07\n4070"
    assert read["timestamp"].endswith("Z")
    assert wrong["exception"][0]["exc_type"] == "ValueError"
    assert wrong["exception"][0]["frames"]
    assert "correct horse" not in file.read_text(encoding="utf-8")
    assert foreign["level"] == "warning"
    assert control_characters(file.read_text(encoding="utf-8") + console) == set()
    assert r"RTX\x1b[31m\x9b2J\x07\x0a4070" in console
    assert len(console.splitlines()) == 4
    assert "went_wrong" in console
    assert "Traceback" not in console


def test_on_a_terminal_the_only_escape_sequences_are_our_colours(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        write(tmp_path / "agent.log", stderr=theirs)
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\x1b[" in shown
    assert not any(bad in shown for bad in ("RTX\x1b", "\x1b[2J", "\x1b]0;", "\x9b", "\x07"))


def test_configured_level_and_above_is_written(tmp_path: Path) -> None:
    file = tmp_path / "agent.log"
    write(file, "error")
    assert [line["event"] for line in lines(file)] == ["went_wrong"]
    write(file, "debug")
    assert "too_quiet" in {line["event"] for line in lines(file)}


@pytest.mark.parametrize("name", ["folder", "absent/agent.log"])
def test_file_that_cannot_be_opened_is_reported_and_nothing_stops(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / name
    stdout, console = write(file)
    assert "no_log_file" in console
    assert str(file) in console
    assert "went_wrong" in console
    assert stdout == "still here\n"


def test_program_in_the_background_reports_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gpud import logs\n"
        "logs.configure(Path(sys.argv[1]), level='info', terminal=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "no_log_file" in done.stderr
