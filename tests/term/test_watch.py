"""``gpud status`` on a terminal, and ``--watch``: on a real pty, with real signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.term import homes
from tests.term.windows import ENVIRONMENT, Window, gpud, window

if TYPE_CHECKING:
    from pathlib import Path

ENTER, LEAVE = re.escape("\x1b[?1049h"), re.escape("\x1b[?1049l")


def line(words: str) -> str:
    """Match words as they are in one row, whatever their colours."""
    return r"(?:\x1b\[[0-9;]*m)*".join(map(re.escape, words.split("|")))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return homes.running(tmp_path, homes.well())


def watching(shown: Window) -> None:
    shown.expect(ENTER)
    shown.expect(line("gpud 0.1.0: |ok"))
    shown.expect("q: leave")


def test_on_a_terminal_it_is_coloured_and_ends_with_the_code_of_what_it_shows(home: Path) -> None:
    with window(gpud(home, "status")) as shown:
        shown.expect(re.escape("\x1b[32mok\x1b[0m"))
        assert shown.ended() == 0
    with window(gpud(home, "status"), columns=40) as shown:
        assert shown.ended() == 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.everything)
        assert max(map(len, plain.splitlines())) <= 40


@pytest.mark.parametrize(
    "environ",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}],
    ids=["NO_COLOR", "dumb", "no TERM"],
)
def test_who_wants_no_colour_gets_none(home: Path, environ: dict[str, str]) -> None:
    with window(gpud(home, "status"), environ=environ) as shown:
        assert shown.ended() == 0
        assert "\x1b" not in shown.everything
    with window(gpud(home, "status", "--color=always"), environ=environ) as shown:
        assert shown.ended() == 0
        assert "\x1b[32m" in shown.everything


def test_a_pipe_gets_plain_words_and_a_locale_without_utf_8_gets_ascii(home: Path) -> None:
    for locale, ascii_only in (("C.UTF-8", False), ("C", True)):
        ran = subprocess.run(
            gpud(home, "status"),
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT | {"LC_ALL": locale},
        )
        assert ran.returncode == 0
        assert "\x1b" not in ran.stdout
        assert ran.stdout.isascii() is ascii_only
        assert ("5 us" if ascii_only else "5 µs") in ran.stdout


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        ("q", 0),
        ("\x03", 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        ("\x1c", 131),
    ],
    ids=["q", "Ctrl-C", "SIGTERM", "SIGHUP", "Ctrl-backslash"],
)
def test_whatever_ends_it_the_terminal_is_as_it_was(
    home: Path, leave: str | signal.Signals, code: int
) -> None:
    with window(gpud(home, "status", "--watch", "60")) as shown:
        before = shown.keys()
        watching(shown)
        assert shown.keys() != before
        if isinstance(leave, str):
            shown.send(leave)
        else:
            os.kill(shown.pid, leave)
        shown.expect(re.escape("\x1b[?7h\x1b[?25h") + LEAVE)
        assert shown.keys() == before
        assert shown.ended() == code
        assert "Traceback" not in shown.everything


def test_another_size_is_drawn_at_once(home: Path) -> None:
    with window(gpud(home, "status", "--watch", "60"), rows=24, columns=80) as shown:
        watching(shown)
        shown.resize(50, 160)
        shown.expect(r"\x1b\[50;1H\x1b\[2K(?:\x1b\[\d+m)?q: leave")
        shown.resize(6, 30)
        shown.expect(r"\x1b\[6;1H\x1b\[2K(?:\x1b\[\d+m)?q: leave; \d+ more lines")


def test_it_redraws_what_changed_and_says_when_nobody_writes(home: Path) -> None:
    with window(gpud(home, "status", "--watch", "0.1")) as shown:
        watching(shown)
        told = homes.well()
        homes.write(home, told | {"state": "degraded"})
        shown.expect("degraded")
        homes.write(home, told | {"written_s": time.time() - 75})
        shown.expect("data 1 min old")
        homes.write(home, told)
        shown.expect(line("gpud 0.1.0: |ok"))


def test_it_goes_on_through_a_restart(home: Path) -> None:
    pid = home / "run/gpud/root.pid"
    running = pid.read_text()
    with window(gpud(home, "status", "--watch", "0.1")) as shown:
        watching(shown)
        pid.unlink()
        shown.expect(r"gpud is not running; start it with: \S+/gpud --home \S+ up")
        shown.expect(line("gpud 0.1.0: |ok"))  # what was last known stays in sight
        (home / "run/gpud/agent.json").write_text("{")
        shown.expect("is not readable as JSON")
        homes.write(home, homes.well())
        pid.write_text(running)
        shown.expect(r"\x1b\[1;1H\x1b\[2K(?:\x1b\[\d+m)?gpud 0\.1\.0: ")


def test_it_can_be_stopped_and_brought_back(home: Path) -> None:
    argv = ["bash", "--norc", "-i"]
    with window(argv, environ={"PS1": "ready> "}) as shown:
        shown.expect("ready> ")
        shown.send(f"{' '.join(gpud(home, 'status', '--watch', '60'))}\n")
        watching(shown)
        shown.send("\x1a")
        shown.expect(LEAVE)
        shown.expect("ready> ")
        shown.send("fg\n")
        watching(shown)
        shown.send("q")
        shown.expect(LEAVE)
        shown.expect("ready> ")


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {}], ids=["dumb", "pipe"])
def test_without_a_terminal_to_draw_on_it_says_what_to_do(
    home: Path, environ: dict[str, str]
) -> None:
    line_ = gpud(home, "status", "--watch", "2")
    if environ:
        with window(line_, environ=environ) as shown:
            shown.expect("--watch needs a terminal that can move its cursor")
            shown.expect(r"fix: watch -n 2 \S+/gpud --home \S+ status")
            assert shown.ended() == 2
    else:
        ran = subprocess.run(line_, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr.endswith(f"/gpud --home {home} status\n")
