"""What is gathered about the toolkit, from a process and files that are really there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from gpud.core.toolkit import PROGRAMS
from gpud.root import toolkit
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's dockerd is followed")

SPEC = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices: []\n'


@contextlib.contextmanager
def running(path: Path, *arguments: str, user: int = 0) -> Iterator[int]:
    """A process with the PATH and the arguments of a dockerd, that only waits."""
    argv = ["/bin/sh", "-c", "echo; read line", "dockerd", *arguments]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": str(path)}, user=user
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has become the shell
        yield process.pid
        process.communicate(b"\n")


def ten_ticks() -> None:
    """The kernel tells when a process started in ticks of 10 ms: closer things look like one."""
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 0.1, "ten ticks")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    place = tmp_path / "bin"
    place.mkdir(mode=0o755)
    for name in PROGRAMS[:2]:
        (place / name).touch(0o755)
    return place


def test_programs_are_looked_for_on_dockerds_own_path(programs: Path) -> None:
    with running(programs) as pid:
        assert toolkit.facts({}, pid, desktop=False).programs == PROGRAMS[:2]


def test_a_dockerd_of_somebody_else_is_not_followed(programs: Path, tmp_path: Path) -> None:
    config = tmp_path / "daemon.json"
    config.write_text('{"runtimes": {"theirs": {}}}')
    specs = tmp_path / "cdi"
    specs.mkdir()
    (specs / "n.yaml").write_text(SPEC)
    info = {"CDISpecDirs": [str(specs)]}
    with running(programs, f"--config-file={config}", user=65534) as pid:
        theirs = toolkit.facts(info, pid, desktop=False)
    assert theirs.programs == ()
    assert "theirs" not in theirs.configured
    assert str(specs / "n.yaml") not in theirs.cdi_specs


def test_a_program_that_came_after_dockerd_is_told_apart(programs: Path) -> None:
    old, new = PROGRAMS[:2]
    (programs / new).unlink()
    ten_ticks()
    with running(programs) as pid:
        ten_ticks()
        (programs / new).touch(0o755)
        found = toolkit.facts({}, pid, desktop=False)
    assert found.programs == (old, new)
    assert found.fresh == (new,)


@pytest.mark.parametrize("form", ["--config-file={}", "--config-file {}"])
def test_runtimes_come_from_the_file_dockerd_was_started_with(
    programs: Path, tmp_path: Path, form: str
) -> None:
    config = tmp_path / "other.json"
    config.write_text('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    with running(programs, *form.format(config).split()) as pid:
        assert toolkit.facts({}, pid, desktop=False).configured == ("nvidia",)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"runtimes": 5}', "[" * 100_000, "\0" * 100])
def test_a_broken_daemon_json_names_no_runtimes(programs: Path, tmp_path: Path, text: str) -> None:
    config = tmp_path / "other.json"
    config.write_text(text)
    with running(programs, f"--config-file={config}") as pid:
        assert toolkit.facts({}, pid, desktop=False).configured == ()


@pytest.mark.parametrize("text", [SPEC, '{\n  "kind": "nvidia.com/gpu",\n  "devices": []\n}'])
def test_a_cdi_file_that_offers_gpus_is_found_in_the_directories_dockerd_names(
    programs: Path, tmp_path: Path, text: str
) -> None:
    specs = tmp_path / "cdi"
    specs.mkdir()
    (specs / "a.yaml").write_text(text)
    (specs / "b.yaml").write_text(text.replace("nvidia.com/gpu", "nvidia.com/gpuless"))
    (specs / "c.txt").write_text(text)
    (specs / "d.yaml").mkdir()
    os.mkfifo(specs / "e.yaml")
    (specs / "f.yaml").symlink_to("f.yaml")
    info = {"CDISpecDirs": [str(specs), str(tmp_path / "missing")]}
    with running(programs) as pid:
        found = toolkit.facts(info, pid, desktop=False)
    assert found.cdi_specs == (str(specs / "a.yaml"),)
    assert found.cdi_dirs == (str(specs), str(tmp_path / "missing"))


def test_what_info_says_is_taken_as_it_is_and_nonsense_as_nothing() -> None:
    info = {
        "ServerVersion": "28.3.0",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, "x"],
    }
    found = toolkit.facts(info, None, desktop=False)
    assert (found.version, found.runtimes) == ("28.3.0", ("nvidia", "runc"))
    assert found.cdi_devices == ("nvidia.com/gpu=0",)
    odd = toolkit.facts(
        {"Runtimes": 5, "CDISpecDirs": "x", "DiscoveredDevices": 7}, 0, desktop=True
    )
    assert (odd.version, odd.runtimes, odd.cdi_dirs, odd.cdi_devices) == (None, None, (), ())
    assert odd.desktop
