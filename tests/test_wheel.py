"""What is committed, a top level one can read, and what of it is in the wheel: all gpud reads."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOP = {
    *("gpud", "deploy", "tests", "docs", ".ci", "bashrc.snippet", "sudoers.snippet"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore"),
    *("LICENSE", "SECURITY.md"),
}
OPTIONAL = {"benchmarks"}

# Split, so that this file is not its own finding.
FOREIGN = re.compile(
    "|".join(
        [
            r"(?<![\w.-])/" + r"work/",
            r"/tmp/" + r"helpers",
            r"/home/" + r"(?!gpud\b|user\d*\b|someone\b)\w+/",
            r"simple/" + r"\s*$",
            r"(?:index|extra-index)-" + r"url\s*=",
            r"https?://[\w.-]*" + r"(?:pypi|artifactory|artifactregistry|pkg\.dev)",
        ]
    ),
    re.MULTILINE,
)


def committed(folder: str = ".") -> list[str]:
    line = ["git", "ls-files", "-z", folder]
    listed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    names = listed.stdout.split("\0")
    return [name for name in names if (ROOT / name).is_file()]  # not deleted here


def test_the_top_level_holds_what_the_design_says_and_nothing_else() -> None:
    top = {name.split("/")[0] for name in committed()}
    assert top - OPTIONAL == TOP


def test_no_committed_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for name in committed():
        text = (ROOT / name).read_text(errors="replace")
        found += [f"{name}: {match[0].strip()}" for match in FOREIGN.finditer(text)]
    assert found == []


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("gpud-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_committed_file_of_the_package_is_in_the_wheel(inside: set[str]) -> None:
    assert not set(committed("gpud")) - inside
    sources = {path.stem for path in (ROOT / "gpud/child/kernels").glob("*.cu")}
    assert sources, "there are kernels to carry"
    assert not [name for name in sources if f"gpud/child/kernels/{name}.ptx" not in inside]
    pages = {path.name for path in (ROOT / "docs/runbooks").iterdir()}
    assert pages
    assert {name.removeprefix("gpud/runbooks/") for name in inside if "/runbooks/" in name} == pages


def test_nothing_but_the_package_is_in_the_wheel(inside: set[str]) -> None:
    others = {
        name
        for name in inside
        if not name.startswith("gpud/") and not name.split("/")[0].endswith(".dist-info")
    }
    assert not others
    odd = [name for name in inside if "__pycache__" in name or name.endswith((".pyc", ".so"))]
    assert not odd
    assert any(name.endswith(".dist-info/entry_points.txt") for name in inside)
