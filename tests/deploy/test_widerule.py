"""Sudo rules that equal root: which are found, and what is left of the file without them."""

from __future__ import annotations

import io
import os
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpud.install.console import agreed
from gpud.install.widerule import report

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A sudoers tree of our own; the real visudo judges it."""
    (tmp_path / "sudoers.d").mkdir()
    (tmp_path / "sudoers").write_text("Defaults env_reset\nroot ALL=(ALL:ALL) ALL\n")
    return tmp_path


def run(etc: Path, *options: str) -> SimpleNamespace:
    text, left = report(etc, remove="--remove" in options)
    return SimpleNamespace(returncode=int(left > 0), stdout=text, stderr="")


def write(etc: Path, text: str, name: str = "sudoers.d/mine") -> Path:
    file = etc / name
    file.write_text(text)
    file.chmod(0o440)
    checked = subprocess.run(
        ["/usr/sbin/visudo", "-cqf", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return file


GOES, STAYS, FINE = "goes", "stays", "fine"


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("%docker ALL=(ALL)  NOPASSWD: /usr/bin/dockerd", GOES),
        ("al ALL=(ALL:ALL) NOPASSWD:/usr/bin/dockerd # from a blog", GOES),
        ("al ALL = NOPASSWD: /usr/bin/dockerd *", GOES),
        ("al ALL = (root) NOPASSWD: /usr/bin/dockerd, /usr/bin/containerd", GOES),
        ("al ALL = NOPASSWD: \\\n   /usr/bin/docker", GOES),
        ("#1000 ALL = NOPASSWD: /usr/sbin/service docker *", GOES),
        ("al ALL = NOPASSWD: /usr/bin/dockerd, /usr/bin/true", STAYS),
        ("al ALL = NOPASSWD: SETENV: /usr/bin/dockerd", STAYS),
        ("al ALL = /usr/bin/true, NOPASSWD: /usr/bin/dockerd", STAYS),
        ("al ALL = NOPASSWD: /usr/bin/dockerd, PASSWD: /usr/bin/true", STAYS),
        ("al one = PASSWD: /usr/bin/true : two = NOPASSWD: /usr/bin/dockerd", STAYS),
        (
            "Cmnd_Alias D = /usr/bin/dockerd\nCmnd_Alias E = D\nal ALL = NOPASSWD: E, /bin/true",
            STAYS,
        ),
        ("# al ALL = NOPASSWD: /usr/bin/dockerd", FINE),
        ("al ALL = /usr/bin/dockerd", FINE),
        ('al ALL = NOPASSWD: /usr/bin/dockerd ""', FINE),
        ("al ALL = NOPASSWD: /usr/sbin/service docker start", FINE),
        ("al ALL = NOPASSWD: /usr/bin/true, PASSWD: /usr/bin/dockerd", FINE),
        ("al ALL = NOPASSWD: !/usr/bin/dockerd", FINE),
        ("al ALL = NOPASSWD: /usr/local/bin/dockerd-status", FINE),
    ],
)
def test_rule_that_equals_root_is_named_and_goes_if_it_is_nothing_else(
    etc: Path, rule: str, outcome: str
) -> None:
    text = f"# before\n{rule}\nal ALL = /usr/bin/true\n"
    file = write(etc, text)
    report = run(etc)
    assert file.read_text() == text, "nothing goes without being asked for"
    if outcome == FINE:
        assert (report.returncode, report.stdout, report.stderr) == (0, "", "")
        return
    assert report.returncode == 1
    line = 2 if outcome == GOES else 2 + rule.count("\n")
    assert f"{file}, line {line}: " in report.stdout
    assert "is root without a password" in report.stdout
    removed = run(etc, "--remove")
    if outcome == GOES:
        assert removed.returncode == 0
        assert file.read_text() == "# before\nal ALL = /usr/bin/true\n"
        assert file.stat().st_mode & 0o7777 == 0o440
        assert os.listdir(etc / "sudoers.d") == ["mine"]  # noqa: PTH208  # hidden names too
    else:
        assert removed.returncode == 1
        assert f"sudo visudo -f {file}" in removed.stdout
        assert file.read_text() == text


def test_main_file_is_read_and_a_file_that_sudo_skips_is_not(etc: Path) -> None:
    for name in ("sudoers.d/mine.bak", "sudoers.d/mine~"):
        (etc / name).write_text("al ALL = NOPASSWD: /usr/bin/dockerd\n")
    assert run(etc).returncode == 0
    file = write(etc, "root ALL = (ALL) ALL\nal ALL = NOPASSWD: /usr/bin/dockerd\n", "sudoers")
    assert run(etc, "--remove").returncode == 0
    assert file.read_text() == "root ALL = (ALL) ALL\n"


def test_result_that_visudo_refuses_is_not_put_in_place_and_steers_no_terminal(etc: Path) -> None:
    text = b"al\x1b[2J\xff ALL = NOPASSWD: /usr/bin/dockerd\nthis is no rule\n"
    (etc / "sudoers.d/mine").write_bytes(text)
    report = run(etc, "--remove")
    assert report.returncode == 1
    assert "visudo refuses" in report.stdout
    assert "\x1b" not in report.stdout
    assert (etc / "sudoers.d/mine").read_bytes() == text


@pytest.mark.parametrize(("keys", "answer"), [("y\n", True), ("\n", False), ("", False)])
def test_rule_goes_only_when_the_answer_is_yes(
    keys: str, *, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(keys))
    assert agreed("Remove what stands alone?") is answer
