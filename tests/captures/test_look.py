"""A machine's own files in a capture: all of it bounded, none of it waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud import regular_file
from gpud.agent.capture import record

if TYPE_CHECKING:
    from pathlib import Path

STORE = "usr/lib/wsl/drivers"


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_tree_without_regular_files_is_a_machine_without_anything(tmp_path: Path) -> None:
    (tmp_path / "etc/wsl.conf").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/os-release")  # to open one for reading waits for a writer
    assert record.linux_files(tmp_path) == {}
    assert record.windows_side(tmp_path) == {"files": {}, "driver_store": {}}


def test_a_long_file_is_cut_and_a_mark_of_a_container_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "proc/version", "x" * (regular_file.LARGEST + 1))
    write(tmp_path / "run/.containerenv", 'name="secret"\n')
    files = record.linux_files(tmp_path)
    assert files == {"/proc/version": "x" * regular_file.LARGEST, "/run/.containerenv": ""}


def test_only_the_files_of_nvidia_are_listed_of_the_driver_store(tmp_path: Path) -> None:
    for name in ("nv_dispi.inf_amd64_5a1e/libcuda.so.1.1", "nv_dispi.inf_amd64_5a1e/nvlddmkm.sys"):
        write(tmp_path / STORE / name)
    write(tmp_path / STORE / "oem.inf_amd64_77/libcuda.so.1.1")
    write(tmp_path / STORE / "nvpcf.inf_amd64_88/nvpcf.sys")
    store = record.windows_side(tmp_path)["driver_store"]
    assert store == {"nv_dispi.inf_amd64_5a1e": ["libcuda.so.1.1"]}


@pytest.mark.parametrize(
    ("conf", "users"), [("", "mnt/c/Users"), ("[automount]\nroot = /windows/\n", "windows/c/Users")]
)
def test_wslconfig_is_read_where_drives_are_mounted_and_a_link_is_not_followed(
    conf: str, users: str, tmp_path: Path
) -> None:
    write(tmp_path / "etc/wsl.conf", conf)
    write(tmp_path / users / "Ada" / ".wslconfig", "[wsl2]\n")
    write(tmp_path / "secret", "T0KEN")
    (tmp_path / users / "Eve").mkdir()
    (tmp_path / users / "Eve" / ".wslconfig").symlink_to(tmp_path / "secret")
    assert record.windows_side(tmp_path)["files"] == {f"/{users}/Ada/.wslconfig": "[wsl2]\n"}


def test_a_name_that_is_no_utf_8_costs_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / STORE / os.fsdecode(b"nv_\xff.inf_amd64_5a1e") / "nvidia-smi")
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "gpud.agent.capture.record", tmp_path],
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout)["driver_store"] == {"nv_?.inf_amd64_5a1e": ["nvidia-smi"]}
