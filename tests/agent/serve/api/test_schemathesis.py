"""Schemathesis asks the real server what its description allows, and what it forbids.

What no schema can say is judged here: the two ends of a range are refused together, by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.api.openapi import PATH
from tests.agent.serve.api.everything import everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKS = """
import schemathesis

@schemathesis.check
def only_ranges_are_refused_although_each_end_is_valid(ctx, response, case):
    if response.status_code == 400 and case.meta.generation.mode.is_positive:
        assert response.json()["error"]["reason"] == "bad_range", response.text
"""

CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 404, 405, 414]  # what is wrong may be too long as well
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with everything(tmp_path_factory.mktemp("home")) as number:
        yield number


def tried(port: int, folder: Path, *words: str, seconds: int) -> str:
    """Run it; gives what it prints."""
    (folder / "checks.py").write_text(CHECKS)
    (folder / "schemathesis.toml").write_text(CONFIG)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}{PATH}"),
            *("--exclude-checks", "positive_data_acceptance", "--generation-database", "none"),
            *("--no-color", *words),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=seconds,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "checks", "PYTHONPATH": str(folder)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.timeout(300)  # 6 s of CPU time, on a machine that may have other work
def test_nothing_that_may_be_asked_breaks_the_description(port: int, tmp_path: Path) -> None:
    said = tried(port, tmp_path, "--max-examples", "10", "--seed", "1", seconds=280)
    assert "9 selected / 9 total" in said
    assert "1 passed" in said.partition("Examples")[2].partition("Coverage")[0]
    assert "Coverage" in said
    assert "Fuzzing" in said
