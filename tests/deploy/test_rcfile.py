"""The marked block in a person's shell files: every byte around it is theirs."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.install import rcfile
from tests.deploy.installing import ROOT

RCFILE = ROOT / "gpud/install/rcfile.py"
BLOCK = b"# >>> gpud >>>\nif true; then\n  :\nfi\n# <<< gpud <<<\n"
BEGIN, END = b"# >>> gpud >>>\n", b"# <<< gpud <<<\n"


def fenceless(text: bytes) -> bool:
    return all(rcfile.bare(line) not in {BEGIN[:-1], END[:-1]} for line in rcfile.lines(text))


SOME = (b"", b"\n", b"\r\n", b"\r", b"alias l=ls\n", b"fi\n", b"  :\n")
ODD = (b"if true; then\r\n", b"#", b"\0")
LINE = st.sampled_from(SOME + ODD)
THEIRS = st.one_of(st.binary(max_size=60), st.lists(LINE, max_size=8).map(b"".join)).filter(
    fenceless
)
WHOLE_LINES = THEIRS.map(lambda text: text if text.endswith(b"\n") or not text else text + b"\n")


@given(THEIRS)
def test_remove_after_add_gives_back_every_byte(theirs: bytes) -> None:
    added = rcfile.with_block(theirs, BLOCK)
    assert added.endswith(END), "a line that somebody appends stays a line of its own"
    assert rcfile.without(added) == theirs


@given(THEIRS, THEIRS)
def test_a_newer_block_takes_the_place_and_what_is_appended_survives_it(
    theirs: bytes, later: bytes
) -> None:
    once = rcfile.with_block(theirs, BLOCK)
    assert rcfile.with_block(once, BLOCK) == once
    new = rcfile.with_block(once, BLOCK.replace(b"true", b"false"))
    assert b"if false" in new
    line_end = b"\n" if theirs and not theirs.endswith(b"\n") and later else b""
    assert rcfile.without(new + later) == theirs + line_end + later
    saved = new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")  # by an editor
    assert rcfile.without(saved).count(b"gpud") == theirs.count(b"gpud")


@given(WHOLE_LINES, WHOLE_LINES, WHOLE_LINES)
def test_of_two_blocks_one_is_left_and_then_none(a: bytes, b: bytes, c: bytes) -> None:
    twice = a + BLOCK + b + BLOCK + c
    assert rcfile.with_block(twice, BLOCK) == a + BLOCK + b + c
    assert rcfile.without(twice) == a + b + c


@pytest.mark.parametrize(("end", "line"), [(BEGIN, 2), (END, 2), (BEGIN + BLOCK, 2)])
def test_block_that_lost_an_end_is_named_and_left(end: bytes, line: int) -> None:
    with pytest.raises(SystemExit, match=f"line {line} is one end of a block"):
        rcfile.without(b"alias l=ls\n" + end + b"alias mine=ls\n")


def run(verb: str, file: Path, *snippets: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-", verb, file, *snippets],
        input=RCFILE.read_text(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def snippet(tmp_path: Path) -> Path:
    place = tmp_path / "snippet"
    place.write_bytes(BLOCK)
    return place


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path, snippet: Path) -> None:
    file = tmp_path / "conf.d/gpud.fish"
    assert run("has", file, snippet).returncode == 1
    assert run("add", file, snippet).returncode == 0
    assert run("has", file, snippet).returncode == 0
    assert run("drop", file, snippet).returncode == 0
    assert not file.exists()


def test_a_link_into_another_directory_stays_a_link_and_the_file_keeps_its_mode(
    tmp_path: Path, snippet: Path
) -> None:
    real = tmp_path / "dotfiles/bashrc"
    real.parent.mkdir()
    real.write_bytes(b"echo hi")
    real.chmod(0o440)
    link = tmp_path / ".bashrc"
    link.symlink_to("dotfiles/bashrc")
    assert run("add", link, snippet).returncode == 0
    real.with_name("bashrc.gpud-new").write_bytes(b"ech")  # an interrupted run left it
    assert BEGIN[:-1] in real.read_bytes()
    assert run("remove", link, snippet).returncode == 0
    assert link.is_symlink()
    assert real.read_bytes() == b"echo hi"
    assert real.stat().st_mode & 0o7777 == 0o440
    assert sorted(path.name for path in real.parent.iterdir()) == ["bashrc"]


def test_a_device_or_a_fifo_in_place_of_the_file_is_refused(tmp_path: Path, snippet: Path) -> None:
    link = tmp_path / ".bashrc"
    link.symlink_to("/dev/null")
    told = run("add", link, snippet)
    assert told.returncode == 1
    assert "'/dev/null' is not a regular file" in told.stderr
    assert run("drop", link, snippet).returncode == 0, "it holds no block"
    assert Path("/dev/null").is_char_device()


def test_what_lies_in_the_place_of_the_new_file_is_not_waited_for(
    tmp_path: Path, snippet: Path
) -> None:
    file = tmp_path / ".bashrc"
    os.mkfifo(tmp_path / ".bashrc.gpud-new")
    assert run("add", file, snippet).returncode == 0
    assert file.read_bytes() == BLOCK
    assert {path.name for path in tmp_path.iterdir()} == {"snippet", ".bashrc"}


def test_a_windows_drive_which_has_no_modes_takes_the_block(
    tmp_path: Path, snippet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def without_modes(descriptor: int) -> os.stat_result:
        return os.stat_result([stat.S_IFREG | 0o777, *fstat(descriptor)[1:]])

    file, fstat = tmp_path / ".bashrc", os.fstat
    file.write_bytes(b"echo hi\n")
    monkeypatch.setattr(os, "fchmod", refused)
    monkeypatch.setattr(os, "fstat", without_modes)
    assert rcfile.main("add", str(file), str(snippet)) == 0
    assert file.read_bytes() == b"echo hi\n" + BLOCK
