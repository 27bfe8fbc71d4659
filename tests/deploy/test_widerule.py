"""Sudo rules that equal root: which are found, and what is left of the file without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/widerule.py"


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A sudoers tree of our own; the real visudo judges it."""
    (tmp_path / "sudoers.d").mkdir()
    (tmp_path / "sudoers").write_text("Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n")
    return tmp_path


def run(etc: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", SCRIPT, "--etc", etc, *options],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )


def write(etc: Path, text: str, name: str = "sudoers.d/mine") -> Path:
    file = etc / name
    file.write_text(text)
    file.chmod(0o440)
    checked = subprocess.run(
        ["/usr/sbin/visudo", "-cqf", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return file


@pytest.mark.parametrize(
    "rule",
    [
        "%docker ALL=(ALL)  NOPASSWD: /usr/bin/dockerd",
        "al ALL=(ALL:ALL) NOPASSWD:/usr/bin/dockerd # from a blog",
        "al ALL = NOPASSWD: /usr/bin/dockerd *",
        "al ALL = (root) NOPASSWD: /usr/bin/dockerd, /usr/bin/containerd",
        "al ALL = NOPASSWD: \\\n   /usr/bin/docker",
        "#1000 ALL = NOPASSWD: /usr/sbin/service docker *",
    ],
)
def test_a_rule_that_is_nothing_but_wide_goes_and_all_else_stays(etc: Path, rule: str) -> None:
    file = write(etc, f"# before\n{rule}\nal ALL = /usr/bin/true\n")
    told = run(etc)
    assert told.returncode == 1
    assert f"{file}, line 2: " in told.stdout
    assert "is root without a password" in told.stdout
    assert rule in file.read_text(), "nothing goes without being asked for"
    assert run(etc, "--remove").returncode == 0
    assert file.read_text() == "# before\nal ALL = /usr/bin/true\n"
    assert file.stat().st_mode & 0o7777 == 0o440
    assert os.listdir(etc / "sudoers.d") == ["mine"]  # noqa: PTH208  # hidden names too
    assert run(etc).stdout == ""


@pytest.mark.parametrize(
    "rule",
    [
        "al ALL = NOPASSWD: /usr/bin/dockerd, /usr/bin/true",
        "al ALL = NOPASSWD: /usr/bin/true, /usr/bin/dockerd",
        "al ALL = NOPASSWD: SETENV: /usr/bin/dockerd",
        "al ALL = /usr/bin/true, NOPASSWD: /usr/bin/dockerd",
        "al ALL = NOPASSWD: /usr/bin/dockerd, PASSWD: /usr/bin/true",
        "al one = NOPASSWD: /usr/bin/dockerd : two = NOPASSWD: /usr/bin/true",
        "al one = PASSWD: /usr/bin/true : two = NOPASSWD: /usr/bin/dockerd",
        "al ALL = PASSWD: /usr/bin/true, NOPASSWD: /usr/bin/dockerd",
        "Cmnd_Alias D = /usr/bin/dockerd\nCmnd_Alias E = D\nal ALL = NOPASSWD: E, /usr/bin/true",
    ],
)
def test_a_rule_that_says_more_is_named_and_left_to_a_person(etc: Path, rule: str) -> None:
    file = write(etc, f"{rule}\n")
    told = run(etc, "--remove")
    assert told.returncode == 1
    assert f"{file}, line {rule.count(chr(10)) + 1}: " in told.stdout
    assert f"sudo visudo -f {file}" in told.stdout
    assert file.read_text() == f"{rule}\n"


@pytest.mark.parametrize(
    "rule",
    [
        "# al ALL = NOPASSWD: /usr/bin/dockerd",
        "al ALL = /usr/bin/dockerd",
        "al ALL = PASSWD: /usr/bin/dockerd",
        'al ALL = NOPASSWD: /usr/bin/dockerd ""',
        "al ALL = NOPASSWD: /usr/sbin/service docker start",
        "al ALL = NOPASSWD: /usr/bin/true, PASSWD: /usr/bin/dockerd",
        "al ALL = NOPASSWD: !/usr/bin/dockerd",
        "al ALL = NOPASSWD: /usr/local/bin/dockerd-status",
    ],
)
def test_a_rule_that_hands_out_nothing_is_not_complained_of(etc: Path, rule: str) -> None:
    write(etc, f"{rule}\n")
    told = run(etc)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_a_file_that_sudo_skips_is_not_looked_at(etc: Path) -> None:
    for name in ("sudoers.d/mine.bak", "sudoers.d/mine~"):
        (etc / name).write_text("al ALL = NOPASSWD: /usr/bin/dockerd\n")
    assert run(etc).returncode == 0


def test_the_main_file_is_looked_at_too(etc: Path) -> None:
    file = write(etc, "root ALL = (ALL) ALL\nal ALL = NOPASSWD: /usr/bin/dockerd\n", "sudoers")
    assert run(etc, "--remove").returncode == 0
    assert file.read_text() == "root ALL = (ALL) ALL\n"


def test_a_result_that_visudo_refuses_is_not_put_in_place(etc: Path) -> None:
    text = "al ALL = NOPASSWD: /usr/bin/dockerd\nthis is no rule\n"
    (etc / "sudoers.d/mine").write_text(text)
    told = run(etc, "--remove")
    assert told.returncode == 1
    assert "visudo refuses" in told.stdout
    assert (etc / "sudoers.d/mine").read_text() == text


def test_what_a_file_says_cannot_play_with_the_terminal(etc: Path) -> None:
    write(etc, "al ALL = NOPASSWD: /usr/bin/dockerd\n")
    (etc / "sudoers.d/mine").write_bytes(b"al\x1b[2J\xff ALL = NOPASSWD: /usr/bin/dockerd\n")
    told = run(etc)
    assert told.returncode == 1
    assert "\x1b" not in told.stdout
