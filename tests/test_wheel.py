"""What is inside the wheel that deploy/install builds: everything gpud reads, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gpud"


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
    listed = subprocess.run(
        ["git", "ls-files", "-z", "gpud"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    committed = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert {name for name in committed if name.endswith(".ptx")}, "there are kernels to carry"
    assert not committed - inside


def test_every_kernel_that_the_probes_load_is_there_as_ptx(inside: set[str]) -> None:
    sources = {path.stem for path in PACKAGE.glob("child/kernels/*.cu")}
    assert sources
    assert not [name for name in sources if f"gpud/child/kernels/{name}.ptx" not in inside]


def test_every_page_of_an_alert_is_in_the_package(inside: set[str]) -> None:
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
