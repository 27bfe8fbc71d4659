"""``gpud logs``: three logs as one, by time; what comes next; and what cannot be read."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.arguments import COMPONENTS
from gpud.core.text import escaped
from gpud.show.view import text
from gpud.verbs import logs as verb
from tests.e2e.program import program
from tests.terminals import window
from tests.verbs.homes import Ran, called, gpud, started

if TYPE_CHECKING:
    from pathlib import Path

BEGUN_S = 1_700_000_000
EVENTS = [
    *("zero", "one", "two", 'said "three"', "four", "five", "six", None, "seven", "8", "nine")
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


def objects(home: Path, *words: str) -> list[dict[str, Any]]:
    done = ran(home, "--json", *words)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_three_logs_and_their_older_files_are_one_by_time(tmp_path: Path, logs: Path) -> None:
    entries = objects(tmp_path)
    assert [entry.get("event") for entry in entries] == EVENTS
    assert entries[7]["raw"] == "  goroutine 1"
    assert entries[7]["unix_s"] == entries[6]["unix_s"]
    assert entries[-1]["code"] == 3
    assert [entry["component"] for entry in entries[:4]] == ["agent", "agent", "root", "dockerd"]
    assert entries[3]["level"] == "warning"
    assert ran(tmp_path, "-n1").out == "2023-11-14 22:13:29 agent   error    nine code=3\n"
    none = ran(tmp_path / "none")
    assert (none.code, none.out) == (3, "")
    assert f"there is no log in {tmp_path}/none/var/log/gpud yet\n  fix: " in none.err


@pytest.mark.parametrize(
    ("words", "events"),
    [
        ("-n2", ["8", "nine"]),
        ("-n 0", []),
        ("--component root", ["two", "five"]),
        ("--level warning", ['said "three"', "four", None, "nine"]),
        ("--since 2023-11-14T22:13:28Z", ["8", "nine"]),
    ],
)
def test_lines_are_chosen_by_number_component_level_and_time(
    tmp_path: Path, logs: Path, words: str, events: list[str | None]
) -> None:
    assert [entry.get("event") for entry in objects(tmp_path, *words.split())] == events


def test_lines_that_cannot_be_read_are_shown_and_steer_no_terminal(
    tmp_path: Path, logs: Path
) -> None:
    evil = "\x1b[2J\x9b31m\u202e"
    with (logs / "root.log").open("w") as log:
        log.write('{"event": "cut of\n[1, 2]\nnull\n')
        log.write(written(20, evil, "warning", **{evil: evil}) + evil + "\n" + written(21, "end"))
        log.write('{"event": 1, "level": [], "timestamp": "2023-99-99"}\n')
    done = ran(tmp_path, "--component", "root")
    assert done.code == 0
    assert not set("\x1b\x9b\u202e") & set(done.out)
    assert "\\x1b[2J" in done.out
    assert '{"event": "cut of' in done.out
    assert len(objects(tmp_path, "--component", "root")) == 7


def test_field_of_an_entry_with_a_name_of_the_documents_own_is_kept(
    tmp_path: Path, logs: Path
) -> None:
    (logs / "agent/agent.log").write_text(written(9, "health_changed", component="store"))
    entry = objects(tmp_path, "-n1")[0]
    assert (entry["component"], entry["field_component"]) == ("agent", "store")


@given(st.text(max_size=300), st.sampled_from(COMPONENTS))
def test_no_line_whatsoever_is_a_failure(raw: str, component: str) -> None:
    entry = verb.read(component, raw)
    json.dumps(verb.document(entry))
    assert text(verb.drawn(entry)) == escaped(text(verb.drawn(entry)))


@pytest.mark.parametrize("unit", ["a", "a=", 'a="', 'a="\\', "=", '"', '\\"', "a b"])
def test_line_of_a_mebibyte_is_read_at_once(unit: str) -> None:
    """Work that grows with the square of a line would take hours."""
    for component in COMPONENTS:
        assert text(verb.drawn(verb.read(component, (unit * (1 << 20))[: 1 << 20])))


def test_file_far_larger_than_a_log_costs_no_more_than_its_end(tmp_path: Path, logs: Path) -> None:
    path = logs / "agent/agent.log"
    os.truncate(path, 50 << 30)  # sparse: it takes no room, and its writer may make it
    with path.open("a") as log:
        log.write("\n" + written(10, "last"))
    done = ran(tmp_path, "--component", "agent", "--since", "90000d", "--json")
    assert json.loads(done.out.splitlines()[-1])["event"] == "last"
    assert f"{path} is larger than a log gets: its last 16 MiB are read" in done.err


def test_followed_lines_come_through_rotation_cutting_and_a_late_start(logs: Path) -> None:
    path = logs / "root.log"
    log = verb.LogFile("root", path)
    log.open()

    def fresh() -> list[str]:
        log.refresh()
        return [entry.raw for entry in log.fresh]

    def append(content: str) -> None:
        with path.open("a") as file:
            file.write(content)

    append("ne\none\nhal")
    assert fresh() == ["half a line", "one"]
    append("f\n")
    path.rename(logs / "root.log.1")
    assert fresh() == ["half"]  # written to the old one before the rename
    path.write_text("new\n")
    assert fresh() == ["new"]
    os.truncate(path, 0)
    assert fresh() == []
    append("emptied\n")
    assert fresh() == ["emptied"]
    path.unlink()
    assert fresh() == []
    path.write_text("again\n")
    assert fresh() == ["again"]
    log.close()


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
        shown.expect("dockerd warning  now module=x\r\n")
        (logs / "agent/agent.log").rename(logs / "agent/agent.log.3")
        (logs / "agent/agent.log").write_text(written(31, "anew"))
        shown.expect("agent   info     anew\r\n")
        shown.send("\x03")
        assert shown.ended() == 130
        assert "Traceback" not in shown.everything


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
