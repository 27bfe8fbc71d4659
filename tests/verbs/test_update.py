"""``gpud update --check``: the newest wheel of a folder or of the index, and its changelog."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

import gpud
from gpud.install.source import INSIDE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = """# Changelog
## [Unreleased]
- Not yet.
## [99.1.0] - 2030-01-02
### Added
- A second thing.
## [99.0.0] - 2030-01-01
- A thing.
## [0.0.1] - 2020-01-01
- The past.
"""


def a_wheel(folder: Path, version: str, changes: str | None = CHANGES) -> None:
    info = f"gpud-{version}.dist-info"
    with zipfile.ZipFile(folder / f"gpud-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: gpud\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        if changes is not None:
            archive.writestr(f"{INSIDE}/CHANGELOG.md", changes)


def check(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpud", "update", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def test_newer_version_of_a_folder_is_named_with_what_it_changes(tmp_path: Path) -> None:
    for version in ("0.0.1", "99.0.0", "99.1.0"):
        a_wheel(tmp_path, version)
    ran = check("--check", "--wheelhouse", str(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"gpud 99.1.0 is there; this is {gpud.__version__}\n")
    assert "- A second thing." in ran.stdout
    assert "- A thing." in ran.stdout
    assert "The past" not in ran.stdout
    assert "Not yet" not in ran.stdout


def test_nothing_newer_and_nothing_at_all_are_told_apart(tmp_path: Path) -> None:
    ran = check("--check", "--wheelhouse", str(tmp_path))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"gpud: there is no wheel of gpud in {tmp_path}\n  fix: ")
    a_wheel(tmp_path, "0.0.1")
    ran = check("--check", "--wheelhouse", str(tmp_path))
    assert (ran.returncode, ran.stdout) == (0, f"gpud {gpud.__version__} is the newest\n")


@contextlib.contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve a folder of projects as an index; its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("changes", [CHANGES, None])
def test_index_is_asked_through_pip_and_another_project_of_the_name_is_none(
    tmp_path: Path, changes: str | None
) -> None:
    project = tmp_path / "simple/gpud"
    project.mkdir(parents=True)
    for version in ("0.0.1", "99.1.0"):
        a_wheel(project, version, changes)
    with index(tmp_path) as address:
        only = {"PIP_INDEX_URL": address, "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}
        ran = check("--check", **only)
    if changes is None:
        assert ran.returncode == 1
        assert "gpud-99.1.0-py3-none-any.whl is not of this project" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
        assert "gpud 99.1.0 is there" in ran.stdout


def test_index_that_gives_nothing_is_named_without_a_log_that_is_gone() -> None:
    ran = check("--check", PIP_NO_INDEX="1")
    assert ran.returncode == 1
    assert "the index gave no wheel of gpud" in ran.stderr
    assert "fix: no public index has gpud yet" in ran.stderr
    assert "all of it is in" not in ran.stderr


@pytest.mark.parametrize("first", [b"\xff\xfe no text", b"a damaged stream"])
def test_damaged_wheel_is_named(first: bytes, tmp_path: Path) -> None:
    wheel = tmp_path / "gpud-99.0.0-py3-none-any.whl"
    text = first if first.startswith(b"\xff") else CHANGES.encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{INSIDE}/CHANGELOG.md", text)
    if text is not first:
        begins = 30 + len(f"{INSIDE}/CHANGELOG.md")
        damaged = bytes(255 - byte for byte in wheel.read_bytes()[begins : begins + 40])
        wheel.write_bytes(wheel.read_bytes()[:begins] + damaged + wheel.read_bytes()[begins + 40 :])
    ran = check("--check", "--wheelhouse", str(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"gpud: {wheel.name} is not of this project\n  fix: ")
