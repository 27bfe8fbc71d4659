"""The agent's document, whatever lies in its place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpud.core.errors import GpudError
from gpud.core.proc import start_ticks
from gpud.place import document


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """One in which gpud runs: this process."""
    ticks = start_ticks(Path("/proc/self/stat").read_text())
    (tmp_path / "root.pid").write_text(f"{os.getpid()} {ticks}\n")
    return tmp_path


def test_the_document_of_an_agent_that_runs_is_given(run_dir: Path) -> None:
    assert document(run_dir) is None
    (run_dir / "agent.json").write_text('{"schema_version": 1, "state": "ok"}')
    assert document(run_dir) == {"schema_version": 1, "state": "ok"}
    (run_dir / "root.pid").unlink()
    assert document(run_dir) is None


@pytest.mark.timeout(20)
def test_a_pipe_in_its_place_is_not_waited_for(run_dir: Path) -> None:
    os.mkfifo(run_dir / "agent.json")
    with pytest.raises(GpudError, match="no plain file"):
        document(run_dir)


@pytest.mark.parametrize("text", ["[" * 99_999, "5", "[1]", json.dumps({"a": 1}), "{", "\xff"])
def test_what_is_none_of_its_documents_is_said_to_be_none(run_dir: Path, text: str) -> None:
    (run_dir / "agent.json").write_text(text, encoding="latin-1")
    with pytest.raises(GpudError, match=r"agent\.json"):
        document(run_dir)
