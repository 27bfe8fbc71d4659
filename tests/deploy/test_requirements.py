"""The pinned packages: exact, hashed, without an address, and the same for running and testing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("requirements*.txt"))
PIN = re.compile(r"(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;]+)(?: ;[^\\]*)?(?P<hashes>.*)")


def requirements(path: Path) -> list[re.Match[str]]:
    """One match per requirement, its continuation lines joined."""
    text = path.read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    found = [(line, PIN.match(line)) for line in lines if line and not line.startswith("#")]
    assert all(match for _, match in found), [line for line, match in found if not match]
    return [match for _, match in found if match]


def pins(path: Path) -> set[tuple[str, str]]:
    return {(match["name"], match["version"]) for match in requirements(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_requirement_is_one_version_with_a_hash(path: Path) -> None:
    assert requirements(path)
    for match in requirements(path):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", match[0]), match["name"]
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)", text, re.MULTILINE)


def test_the_tests_run_on_the_versions_that_people_run_with_apprise_and_without() -> None:
    usual, extra = (pins(DEPLOY / f"requirements{name}.txt") for name in ("", "-apprise"))
    assert usual
    assert usual | extra <= pins(DEPLOY / "requirements-dev.txt")
    names = {name for name, _ in extra}
    assert "apprise" in names
    assert not names & {name for name, _ in usual}
