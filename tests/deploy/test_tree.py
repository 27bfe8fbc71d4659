"""The new tree is tried before it takes the place of the old one."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from gpud.install import tree
from gpud.install.console import InstallError
from gpud.install.setup import removed
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_tree_is_removed_although_what_was_interrupted_still_writes_there(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "gpud.gpud-new"
    folder.mkdir()
    writes = "i=0; while :; do i=$((i + 1)); : >$0/$i; done"
    line = ("timeout", "--signal=KILL", "0.5", "sh", "-c", writes, str(folder))
    with subprocess.Popen(line, stderr=subprocess.DEVNULL):
        until(lambda: len(list(folder.iterdir())) > MANY, "it to write")
        removed(folder)
        assert not folder.exists()
