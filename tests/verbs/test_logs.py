"""``gpud logs``: three logs as one, by time; what comes next; and what cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.arguments import COMPONENTS
from gpud.core.text import escaped
from gpud.show.view import text
from gpud.verbs import logs as verb
from tests.e2e.program import program
from tests.terminals import ENVIRONMENT, window
from tests.verbs.homes import Ran, called, configured, gpud, running, started
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path

BEGUN_S = 1_700_000_000
THREE = r'"said \"three\""'
EVENTS = [
    *("zero", "one", "two", THREE, "four", "five", '"six"', "  goroutine 1", "seven", '"8"', "nine")
]


def written(at: int, event: str, level: str = "info", **rest: object) -> str:
    stamp = datetime.fromtimestamp(BEGUN_S + at, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": event, "level": level, "timestamp": stamp, **rest}) + "\n"


def dockerd(at: int, message: str, level: str = "info") -> str:
    stamp = datetime.fromtimestamp(BEGUN_S + at, UTC).isoformat().replace("+00:00", ".123456789Z")
    return f'time="{stamp}" level={level} msg="{message}" module=x\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder of logs of a home: what was written at 0 to 9, by turns and in three files."""
    folder = tmp_path / "var/log/gpud"
    (folder / "agent").mkdir(parents=True)
    (folder / "agent/agent.log.2").write_text(written(0, "zero"))
    (folder / "agent/agent.log.1").write_text(written(1, "one") + written(4, "four", "warning"))
    (folder / "agent/agent.log").write_text(
        written(7, "seven") + written(9, "nine", "error", code=3)
    )
    (folder / "root.log").write_text(written(2, "two") + written(5, "five") + "half a li")
    (folder / "dockerd.log").write_text(
        dockerd(3, 'said \\"three\\"', "warn")
        + dockerd(6, "six")
        + "  goroutine 1\n"
        + "\0" * 99  # a hole, or what a crash of the machine left
        + dockerd(8, "8")
    )
    return folder


def ran(home: Path, *words: str) -> Ran:
    return called(home, "logs", *words, TZ="UTC")


def events(home: Path, *words: str) -> list[str]:
    done = ran(home, *words)
    assert (done.code, done.err) == (0, "")
    return [
        line[37:].partition(" module=")[0].partition(" code=")[0] for line in done.out.splitlines()
    ]


def test_three_logs_and_their_older_files_are_one_by_time(tmp_path: Path, logs: Path) -> None:
    assert events(tmp_path) == EVENTS
    assert ran(tmp_path, "-n1").out == "2023-11-14 22:13:29 agent   error    nine code=3\n"
    lines = ran(tmp_path).out.splitlines()
    assert lines[3].startswith("2023-11-14 22:13:23 dockerd warning  ")
    assert lines[7].startswith("2023-11-14 22:13:26 dockerd           "), "as the line before it"
    (logs / "dockerd.log").rename(logs / "dockerd.log.1")
    assert len(events(tmp_path, "--component", "dockerd")) == 4, "a rotated log alone is one"
    none = ran(tmp_path / "none")
    assert (none.code, none.out) == (3, "")
    assert f"there is no log in {tmp_path}/none/var/log/gpud yet\n  fix: " in none.err


def test_dockerd_that_gpud_did_not_start_has_its_log_elsewhere(tmp_path: Path) -> None:
    configured(running(tmp_path, {}), '[dockerd]\npolicy = "off"\n')
    none = ran(tmp_path, "--component", "dockerd")
    assert (none.code, none.out) == (3, "")
    assert "gpud has started no dockerd: there is no log of it\n  fix: " in none.err
    assert "journalctl -u docker" in none.err
    assert "there is no log" in ran(tmp_path, "--component", "root").err


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("-n2", EVENTS[-2:]),
        ("-n 0", []),
        ("--component root", ["two", "five"]),
        ("--level warning", [EVENTS[3], "four", EVENTS[7], "nine"]),
        ("--since 2023-11-14T22:13:28Z", EVENTS[-2:]),
    ],
)
def test_lines_are_chosen_by_number_component_level_and_time(
    tmp_path: Path, logs: Path, words: str, chosen: list[str]
) -> None:
    assert events(tmp_path, *words.split()) == chosen


def test_line_as_deep_as_the_stack_is_shown_as_it_is() -> None:
    for depth in range(900, 1000):
        raw = f'{{"event": "e", "timestamp": "2026-01-01", "x": {"[" * depth}{"]" * depth}}}'
        assert verb.read("agent", raw).event in {"e", raw}


@given(st.text(max_size=300), st.sampled_from(COMPONENTS))
def test_no_line_whatsoever_is_a_failure_or_steers_the_terminal(raw: str, component: str) -> None:
    shown = text(verb.drawn(verb.read(component, raw)))
    assert shown == escaped(shown)


def test_fields_that_are_hostile_steer_no_terminal(tmp_path: Path, logs: Path) -> None:
    evil = "\x1b[2J\x9b31m\u202e"
    with (logs / "root.log").open("w") as log:
        log.write('{"event": "cut of\n[1, 2]\nnull\n')
        log.write(written(20, evil, "warning", **{evil: evil}) + evil + "\n")
        log.write('{"event": 1, "level": [], "timestamp": "2023-99-99"}\n')
    shown = ran(tmp_path, "--component", "root").out
    assert not set("\x1b\x9b\u202e") & set(shown)
    assert "\\x1b[2J" in shown
    assert len(shown.splitlines()) == 6


def test_file_far_larger_than_a_log_costs_no_more_than_its_end(tmp_path: Path, logs: Path) -> None:
    path = logs / "agent/agent.log"
    os.truncate(path, 50 << 30)  # sparse: it takes no room, and its writer may make it
    with path.open("a") as log:
        log.write("\n" + written(10, "last"))
    assert events(tmp_path, "--component", "agent", "--since", "90000d")[-1] == "last"


def test_followed_lines_come_through_rotation_cutting_and_a_late_start(logs: Path) -> None:
    path = logs / "root.log"
    log = verb.LogFile("root", path)

    def fresh() -> list[str]:
        return [entry.event for entry in log.fresh()][::-1]

    def append(content: str) -> None:
        with path.open("a") as file:
            file.write(content)

    assert fresh() == ["two", "five"]
    append("ne\none\nhal")
    assert fresh() == ["half a line", "one"]
    append("f\n")
    assert fresh() == ["half"]
    path.rename(logs / "root.log.1")
    assert fresh() == []
    path.write_text("new\n")
    assert fresh() == ["new"]
    os.truncate(path, 0)
    append("x\n")
    assert fresh() == ["x"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_something_else_than_a_file_is_named_and_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "var/log/gpud/root.log"
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to("/etc/hostname")
    else:
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
    done = ran(tmp_path)
    assert (done.code, done.out) == (4, "")
    assert f"cannot read {path}: " in done.err


def test_following_prints_what_comes_and_ends_quietly_with_130(tmp_path: Path, logs: Path) -> None:
    with window(gpud(tmp_path, "logs", "-f", "-n1", "--color=never")) as shown:
        shown.expect("nine code=3\r\n")
        with (logs / "dockerd.log").open("a") as log:
            log.write(dockerd(30, "now", "warn"))
        shown.expect('dockerd warning  "now" module=x\r\n')
        (logs / "agent/agent.log").rename(logs / "agent/agent.log.3")
        (logs / "agent/agent.log").write_text(written(31, "anew"))
        shown.expect("agent   info     anew\r\n")
        shown.send("\x03")
        assert shown.ended() == 130
        assert "Traceback" not in shown.everything


def test_following_ends_when_nobody_reads_what_it_prints(tmp_path: Path, logs: Path) -> None:
    words = gpud(tmp_path, "logs", "-f", "-n1")
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=ENVIRONMENT) as following:
        assert following.stdout is not None
        assert b"nine code=3" in following.stdout.readline()
        following.stdout.close()
        assert following.wait(LIMIT_S) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_log_that_may_not_be_read_is_named_with_the_command_that_may() -> None:
    with program() as made:
        folder = made.home / "var/log/gpud"
        (folder / "agent").mkdir(parents=True)
        (folder / "root.log").write_text(written(0, "readable"))
        (folder / "dockerd.log").touch(0o600)
        some = started(made.home, "logs", nobody=True)
        none = started(made.home, "logs", "--component", "dockerd", nobody=True)
    assert (some.code, "readable" in some.out) == (0, True)
    assert (none.code, none.out) == (4, "")
    for done, words in ((some, ""), (none, " --component dockerd")):
        assert f"cannot read {folder}/dockerd.log: Permission denied" in done.err
        assert done.err.endswith(f"/gpud --home {made.home} logs{words}\n")
