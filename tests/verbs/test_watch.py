"""``gpud status`` on a terminal, and ``--watch``: on a real pty, with real signals."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.terminals import Window, window
from tests.verbs import homes
from tests.verbs.homes import gpud, started

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


def test_status_is_coloured_on_a_terminal_and_no_wider_than_it(home: Path) -> None:
    for columns in (80, 40):
        with window(gpud(home, "status"), columns=columns) as shown:
            assert shown.ended() == 0
        assert ("\x1b[32mok\x1b[0m" in shown.everything) is (columns == 80)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.everything)
    assert max(map(len, plain.splitlines())) <= 40


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_terminal_without_colour_gets_none_unless_it_is_asked_for(
    home: Path, environ: dict[str, str]
) -> None:
    for words, coloured in (((), False), (("--color=always",), True)):
        with window(gpud(home, "status", *words), environ=environ) as shown:
            assert shown.ended() == 0
            assert ("\x1b[32m" in shown.everything) is coloured


def test_pipe_gets_plain_words_and_a_locale_without_utf_8_gets_ascii(home: Path) -> None:
    for ran, ascii_only in (
        (started(home, "status", LC_ALL="C.UTF-8"), False),
        (started(home, "status", LC_ALL="C"), True),
        (started(home, "status", LANG="C"), True),
    ):
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert ran.out.isascii() is ascii_only
        assert ("5 us" if ascii_only else "5 µs") in ran.out


@pytest.mark.parametrize(
    ("leave", "code"),
    [("q", 0), ("\x03", 130), (signal.SIGTERM, 143)],
    ids=["q", "Ctrl-C", "SIGTERM"],
)
def test_terminal_is_as_it_was_whatever_ends_the_watch(
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
        shown.expect(LEAVE)
        shown.expect(re.escape("\x1b[?25h"))
        assert shown.keys() == before
        assert shown.ended() == code
        assert "Traceback" not in shown.everything


def test_watch_follows_changes_old_data_and_a_restart(home: Path) -> None:
    pid = home / "run/gpud/root.pid"
    running = pid.read_text()
    with window(gpud(home, "status", "--watch", "0.1"), columns=200) as shown:
        watching(shown)
        published = homes.well()
        homes.write(home, published | {"state": "degraded"})
        shown.expect("degraded")
        homes.write(home, published | {"written_s": time.time() - 75})
        shown.expect("data 1 min old")
        homes.write(home, published)
        shown.expect(line("gpud 0.1.0: |ok"))
        pid.unlink()
        shown.expect("gpud is not running; start it with:")
        shown.expect(line("gpud 0.1.0: |ok"))  # the last document stays in sight
        (home / "run/gpud/agent.json").write_text("{")
        shown.expect("is not readable as JSON")
        homes.write(home, homes.well())
        pid.write_text(running)
        shown.expect(r"\x1b\[1;1H(?:\x1b\[[\d;]+m)*gpud 0\.1\.0: ")


def test_watch_can_be_stopped_and_brought_back(home: Path) -> None:
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


def test_watch_without_a_terminal_to_draw_on_is_2_with_the_fix(home: Path) -> None:
    fix = f"fix: watch -n 2 {homes.COMMAND} --home {home} status"
    with window(gpud(home, "status", "--watch", "2"), environ={"TERM": "dumb"}) as shown:
        assert shown.ended() == 2
        assert fix in shown.everything
    ran = started(home, "status", "--watch", "2")
    assert (ran.code, ran.out, fix in ran.err) == (2, "", True)
