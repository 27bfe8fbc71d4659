"""``gpud logs``: three logs as one, by time; what comes next; and what cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud import arguments
from gpud.core.text import escaped
from gpud.show.view import text
from gpud.term.logs import command, files
from gpud.term.logs.entries import COMPONENTS, LEVELS, document, drawn, entry, severe
from tests.e2e.program import as_nobody, program
from tests.term.windows import ENVIRONMENT, gpud, window

if TYPE_CHECKING:
    from pathlib import Path

BEGUN_S = 1_700_000_000


def told(at: int, event: str, level: str = "info", **rest: object) -> str:
    stamp = datetime.fromtimestamp(BEGUN_S + at, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": event, "level": level, "timestamp": stamp, **rest}) + "\n"


def dockerd(at: int, message: str, level: str = "info") -> str:
    stamp = datetime.fromtimestamp(BEGUN_S + at, UTC).isoformat().replace("+00:00", ".123456789Z")
    return f'time="{stamp}" level={level} msg="{message}" module=x\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The folder of logs of a home: what was said at 0 to 9, by turns and in three files."""
    folder = tmp_path / "var/log/gpud"
    (folder / "agent").mkdir(parents=True)
    (folder / "agent/agent.log.2").write_text(told(0, "zero"))
    (folder / "agent/agent.log.1").write_text(told(1, "one") + told(4, "four", "warning"))
    (folder / "agent/agent.log").write_text(told(7, "seven") + told(9, "nine", "error", code=3))
    (folder / "root.log").write_text(told(2, "two") + told(5, "five"))
    (folder / "dockerd.log").write_text(
        dockerd(3, 'said \\"three\\"', "warn")
        + dockerd(6, "six")
        + "  goroutine 1\n"
        + dockerd(8, "8")
    )
    return folder


def ran(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        gpud(home, "logs", *words),
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | {"TZ": "UTC"},
        timeout=60,
    )


def objects(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_three_logs_and_their_older_files_are_one_by_time(tmp_path: Path, logs: Path) -> None:
    done = ran(tmp_path, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = objects(done.stdout)
    names = [
        "zero",
        "one",
        "two",
        'said "three"',
        "four",
        "five",
        "six",
        None,
        "seven",
        "8",
        "nine",
    ]
    assert [one.get("event") for one in found] == names
    assert found[7]["raw"] == "  goroutine 1"
    assert found[7]["unix_s"] == found[6]["unix_s"]
    assert found[-1]["code"] == 3
    assert [found[0]["component"], found[2]["component"], found[3]["level"]] == [
        *("agent", "root", "warning"),
    ]


def test_lines_are_chosen_by_number_component_and_level(tmp_path: Path, logs: Path) -> None:
    assert [one["event"] for one in objects(ran(tmp_path, "--json", "-n2").stdout)] == ["8", "nine"]
    assert ran(tmp_path, "-n", "0").stdout == ""
    root = objects(ran(tmp_path, "--json", "--component", "root").stdout)
    assert [one["event"] for one in root] == ["two", "five"]
    severe = objects(ran(tmp_path, "--json", "--level", "warning").stdout)
    assert [one.get("event") for one in severe] == ['said "three"', "four", None, "nine"]
    since = objects(ran(tmp_path, "--json", "--since", "2023-11-14T22:13:28Z").stdout)
    assert [one["event"] for one in since] == ["8", "nine"]
    wrong = ran(tmp_path, "--since", "then")
    assert (wrong.returncode, "is no moment" in wrong.stderr) == (2, True)


def test_a_person_reads_one_line_each(tmp_path: Path, logs: Path) -> None:
    last = ran(tmp_path, "-n1").stdout
    assert last == "2023-11-14 22:13:29 agent   error    nine code=3\n"


def test_lines_that_cannot_be_read_are_shown_and_do_nothing(tmp_path: Path, logs: Path) -> None:
    evil = "\x1b[2J\x9b31m\u202e"
    with (logs / "root.log").open("a") as log:
        log.write('{"event": "cut of\n[1, 2]\nnull\n')
        log.write(told(20, evil, "warning", **{evil: evil}) + evil + "\n" + told(21, "end"))
        log.write('{"event": 1, "level": [], "timestamp": "2023-99-99"}\n')
    done = ran(tmp_path, "--component", "root")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "\\x1b[2J" in done.stdout
    assert '{"event": "cut of' in done.stdout
    assert len(objects(ran(tmp_path, "--component", "root", "--json").stdout)) == 9


@given(st.text(max_size=300), st.sampled_from(COMPONENTS), st.sampled_from((None, *LEVELS)))
def test_no_line_whatsoever_is_a_failure(raw: str, component: str, least: str | None) -> None:
    one = entry(component, raw)
    severe(one, least)
    json.dumps(document(one))
    assert text(drawn(one)) == escaped(text(drawn(one)))


@pytest.mark.parametrize("made_of", ["a", "a=", 'a="', 'a="\\', "=", '"', '\\"', "a b"])
def test_a_line_as_long_as_they_get_is_read_at_once(made_of: str) -> None:
    """Work that grows with the square of a line would take hours."""
    for component in COMPONENTS:
        raw = (made_of * files.LONGEST)[: files.LONGEST]
        assert text(drawn(entry(component, raw)))


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_backwards_gives_every_line_that_forwards_has(lines: list[str]) -> None:
    with program() as made:
        path = made.home / "log"
        path.write_text("".join(f"{line}\n" for line in lines))
        whole = [line.replace("\0", "") for line in lines]  # zeros are what a hole reads as
        assert list(files.backwards(path))[::-1] == [line for line in whole if line]


def test_a_line_across_blocks_is_whole_and_an_endless_one_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    long = "x" * (3 * files.BLOCK)
    path.write_text(f"first\n{long}\nlast\n")
    assert list(files.backwards(path)) == ["last", long, "first"]
    path.write_text("y" * (2 * files.LONGEST + 10))
    assert sum(map(len, files.backwards(path))) == 2 * files.LONGEST + 10
    assert max(map(len, files.backwards(path))) <= files.LONGEST + files.BLOCK


@pytest.mark.parametrize("hole", [99, 3 * files.BLOCK + 99])
def test_hole_within_a_log_is_not_part_of_a_line(tmp_path: Path, hole: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    followed = files.Followed(path)
    followed.begin()
    path.write_bytes(b'{"a":0}\n' + bytes(hole) + b'{"a":1}\n')
    lines = ['{"a":0}', '{"a":1}']
    assert list(files.backwards(path)) == lines[::-1]
    assert followed.fresh() == lines
    followed.close()


def test_a_file_far_larger_than_a_log_costs_no_more_than_its_end(
    tmp_path: Path, logs: Path
) -> None:
    path = logs / "agent/agent.log"
    os.truncate(path, 50 << 30)  # sparse: it takes no room, and its writer may make it
    with path.open("a") as log:
        log.write("\n" + told(10, "last"))
    done = ran(tmp_path, "--component", "agent", "--since", "90000d", "--json")
    assert done.returncode == 0, done.stderr
    assert objects(done.stdout)[-1]["event"] == "last"
    assert f"{path} is larger than a log gets: its last 16 MiB are read" in done.stderr
    file = files.Followed(path)
    file.begin()
    os.truncate(path, 100 << 30)
    assert sum(map(len, file.fresh())) <= files.LARGEST
    file.close()


def test_followed_lines_come_through_rotation_cutting_and_a_late_start(logs: Path) -> None:
    path = logs / "root.log"
    file = files.Followed(path)
    assert file.begin() == path.stat().st_size
    with path.open("a") as log:
        log.write("one\nhal")
    assert file.fresh() == ["one"]
    with path.open("a") as log:
        log.write("f\n")
    path.rename(logs / "root.log.1")
    assert file.fresh() == ["half"]  # written to the old one before the rename
    path.write_text("new\n")
    assert file.fresh() == ["new"]
    os.truncate(path, 0)
    assert file.fresh() == []
    with path.open("a") as log:
        log.write("emptied\n")
    assert file.fresh() == ["emptied"]
    path.unlink()
    assert file.fresh() == []
    path.write_text("again\n")
    assert file.fresh() == ["again"]
    late = files.Followed(logs / "later.log")
    assert late.begin() is None
    assert late.fresh() == []
    (logs / "later.log").write_text("here\n")
    assert late.fresh() == ["here"]
    file.close()
    late.close()


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_log_is_not_opened(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    if what == "link":
        path.symlink_to("/etc/hostname")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError, match=str(path)):
        list(files.backwards(path))


def test_following_tells_what_comes_and_ends_quietly_with_130(tmp_path: Path, logs: Path) -> None:
    with window(gpud(tmp_path, "logs", "-f", "-n1", "--color=never")) as shown:
        shown.expect("nine code=3\r\n")
        with (logs / "root.log").open("a") as log:
            log.write(told(30, "now", "warning"))
        shown.expect("root    warning  now\r\n")
        (logs / "agent/agent.log").rename(logs / "agent/agent.log.3")
        (logs / "agent/agent.log").write_text(told(31, "anew"))
        shown.expect("agent   info     anew\r\n")
        shown.send("\x03")
        assert shown.ended() == 130
        assert "Traceback" not in shown.everything


def test_without_any_log_it_is_3_and_says_what_makes_one(tmp_path: Path) -> None:
    done = ran(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "fix: gpud writes one as soon as it runs: gpud up" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_what_may_not_be_read_is_named_with_the_command_that_may() -> None:
    with program() as made:
        folder = made.home / "var/log/gpud"
        (folder / "agent").mkdir(parents=True)
        (folder / "root.log").write_text(told(0, "readable"))
        (folder / "dockerd.log").touch(0o600)
        command = [*as_nobody(made.home), *gpud(made.home, "logs")]

        def nobody(*words: str) -> subprocess.CompletedProcess[str]:
            line = [*command, *words]
            return subprocess.run(line, capture_output=True, text=True, check=False, cwd="/")

        some, none = nobody(), nobody("--component", "dockerd")
    assert (some.returncode, "readable" in some.stdout) == (0, True)
    assert (none.returncode, none.stdout) == (4, "")
    for done, words in ((some, ""), (none, " --component dockerd")):
        assert f"cannot read {folder}/dockerd.log: Permission denied" in done.stderr
        assert done.stderr.endswith(f"/gpud --home {made.home} logs{words}\n")


def test_what_may_be_typed_is_what_the_logs_know() -> None:
    assert (arguments.COMPONENTS, arguments.LEVELS) == (COMPONENTS, LEVELS)
    assert set(command.FILES) == set(COMPONENTS)
