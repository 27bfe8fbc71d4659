"""What is committed is what the code gives, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.grafana import generate
from tests.grafana.dashboards import FOLDER, ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = "deploy/build-dashboards"


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / COMMAND, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A tree with the command and the code alone."""
    keep = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "deploy/grafana", tmp_path / "deploy/grafana", ignore=keep)
    shutil.copy(ROOT / COMMAND, tmp_path / COMMAND)
    return tmp_path


def test_the_committed_dashboards_are_what_the_code_gives() -> None:
    made = generate.files()
    assert set(made) == set(FOLDER.iterdir())
    for file, text in made.items():
        assert file.read_bytes() == text.encode(), f"{file.name}: run {COMMAND}"


def test_the_command_tells_a_file_that_was_edited_and_writes_it_anew(copied: Path) -> None:
    edited = copied / "deploy/grafana/dashboards/fleet.json"
    before = edited.read_bytes()
    assert run(copied, "--check").returncode == 0
    edited.write_bytes(before.replace(b'"editable": false', b'"editable": true'))
    checked = run(copied, "--check")
    assert (checked.returncode, checked.stdout[:11]) == (1, "fleet.json:")
    assert run(copied).returncode == 0
    assert edited.read_bytes() == before
    edited.unlink()
    assert run(copied, "--check").returncode == 1
