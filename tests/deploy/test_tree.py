"""The new tree is tried before it takes its place; the manifest survives an interruption."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from gpud.install import manifest, tree
from gpud.install.console import InstallError
from gpud.install.setup import removed
from tests.waiting import until

MANY = 500  # that it takes a while to remove


@pytest.mark.parametrize(
    ("verb", "reason", "code", "fault"),
    [
        ("completion", "", 1, "run"),
        ("config", "Traceback (most recent call last):", 1, "run"),
        ("config", "", -9, "run"),
        ("config", "gpud: a setting", 2, "start with these settings"),
        ("config", "gpud: secrets for everybody", 1, ""),
    ],
)
def test_version_that_fails_is_refused_before_it_is_put_in_place(  # noqa: PLR0917  # columns
    verb: str, reason: str, code: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(
        f"#!/bin/sh\ncase $* in *' {verb} '*) echo '{reason}' >&2;"
        f" {f'kill {code} $$' if code < 0 else f'exit {code}'} ;; esac\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(tree, "NEW", tmp_path)
    if not fault:
        tree.check()
        return
    with pytest.raises(InstallError, match=f"does not {fault}; the installed one was left"):
        tree.check()


def test_a_tree_is_removed_although_what_was_interrupted_still_writes_there(tmp_path: Path) -> None:
    folder = tmp_path / "gpud.gpud-new"
    folder.mkdir()
    writes = "i=0; while :; do i=$((i + 1)); : >$0/$i; done"
    line = ("timeout", "--signal=KILL", "0.5", "sh", "-c", writes, str(folder))
    with subprocess.Popen(line, stderr=subprocess.DEVNULL):
        until(lambda: len(list(folder.iterdir())) > MANY, "it to write")
        removed(folder)
        assert not folder.exists()


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest, from which an uninstallation knows what was made."""
    file = tmp_path / "manifest"
    monkeypatch.setattr(manifest, "MANIFEST", file)
    return file


def test_interruption_while_a_line_is_taken_out_loses_no_other_line(
    noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "tree /opt/gpud\nwith apprise\n"
    noted.write_text(lines)
    write = Path.write_text

    def interrupted(path: Path, text: str, **options: str) -> int:
        write(path, text[:3], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manifest.forget("with apprise")
    assert noted.read_text() == lines
    manifest.forget("with apprise")
    assert noted.read_text() == "tree /opt/gpud\n"
    assert list(noted.parent.iterdir()) == [noted]


def test_line_that_the_disk_has_no_room_for_is_not_written_by_halves(noted: Path) -> None:
    """``file /etc`` out of ``file /etc/sudoers.d/gpud`` would be removed some day."""
    noted.write_text("tree /opt/gpud\n")
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len("tree /opt/gpud\nfile /etc"), most))
    try:
        with pytest.raises(OSError, match="File too large"):
            manifest.note("file /etc/sudoers.d/gpud")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert manifest.lines() == ["tree /opt/gpud"]
    manifest.note("file /etc/sudoers.d/gpud")
    assert manifest.lines() == ["tree /opt/gpud", "file /etc/sudoers.d/gpud"]
