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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_requirement_carries_an_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)", text, re.MULTILINE)


def test_the_tests_run_on_the_versions_that_people_run() -> None:
    runtime = pins(DEPLOY / "requirements.txt")
    assert runtime
    assert runtime <= pins(DEPLOY / "requirements-dev.txt")


def test_apprise_adds_to_what_everybody_runs_and_is_tested_in_these_versions() -> None:
    extra = pins(DEPLOY / "requirements-apprise.txt")
    assert "apprise" in {name for name, _ in extra}
    assert extra <= pins(DEPLOY / "requirements-dev.txt")
    assert not {name for name, _ in extra} & {n for n, _ in pins(DEPLOY / "requirements.txt")}
