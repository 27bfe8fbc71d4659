"""What is looked at of a machine's own files: all of it bounded, none of it waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gpud.agent.capture import look

if TYPE_CHECKING:
    from pathlib import Path

STORE = "usr/lib/wsl/drivers"


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_tree_without_anything_is_a_machine_without_anything(tmp_path: Path) -> None:
    assert look.linux(tmp_path) == {"files": {}, "devices": [], "pci": []}
    assert look.windows(tmp_path) == {"files": {}, "driver_store": {}}


def test_a_pipe_a_folder_and_a_plain_file_in_a_wrong_place_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "etc/wsl.conf").mkdir(parents=True)
    os.mkfifo(tmp_path / "etc/os-release")  # to open one for reading waits for a writer
    write(tmp_path / "dev/dxg", "no device")
    assert look.linux(tmp_path) == {"files": {}, "devices": [], "pci": []}


def test_of_a_long_file_there_is_the_beginning(tmp_path: Path) -> None:
    write(tmp_path / "proc/version", "x" * (look.LARGEST + 1))
    assert look.linux(tmp_path)["files"] == {"/proc/version": "x" * look.LARGEST}


def test_only_display_controllers_count(tmp_path: Path) -> None:
    for slot, kind, vendor in (("1", "0x030000", "0x10de"), ("2", "0x040300", "0x10de")):
        write(tmp_path / f"sys/bus/pci/devices/{slot}/class", f"{kind}\n")
        write(tmp_path / f"sys/bus/pci/devices/{slot}/vendor", f"{vendor}\n")
    assert look.linux(tmp_path)["pci"] == ["0x10de"]


def test_a_mark_of_a_container_is_there_without_what_it_says(tmp_path: Path) -> None:
    write(tmp_path / "run/.containerenv", 'name="secret"\n')
    assert look.linux(tmp_path)["files"] == {"/run/.containerenv": ""}


def test_of_the_driver_store_only_what_is_nvidias_is_listed(tmp_path: Path) -> None:
    for name in ("nv_dispi.inf_amd64_5a1e/libcuda.so.1.1", "nv_dispi.inf_amd64_5a1e/nvlddmkm.sys"):
        write(tmp_path / STORE / name)
    write(tmp_path / STORE / "oem.inf_amd64_77/libcuda.so.1.1")
    write(tmp_path / STORE / "nvpcf.inf_amd64_88/nvpcf.sys")
    assert look.windows(tmp_path)["driver_store"] == {"nv_dispi.inf_amd64_5a1e": ["libcuda.so.1.1"]}


@pytest.mark.parametrize(
    ("conf", "users"), [("", "mnt/c/Users"), ("[automount]\nroot = /windows/\n", "windows/c/Users")]
)
def test_wslconfig_is_found_where_drives_are_mounted(conf: str, users: str, tmp_path: Path) -> None:
    write(tmp_path / "etc/wsl.conf", conf)
    write(tmp_path / users / "Ada" / ".wslconfig", "[wsl2]\n")
    assert look.windows(tmp_path)["files"] == {f"/{users}/Ada/.wslconfig": "[wsl2]\n"}


def test_a_link_in_the_place_of_wslconfig_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret", "T0KEN")
    folder = tmp_path / "mnt/c/Users/Ada"
    folder.mkdir(parents=True)
    (folder / ".wslconfig").symlink_to(tmp_path / "secret")
    assert look.windows(tmp_path)["files"] == {}


def test_a_name_that_is_no_utf_8_costs_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / STORE / os.fsdecode(b"nv_\xff.inf_amd64_5a1e") / "nvidia-smi")
    ran = subprocess.run(
        [sys.executable, "-I", "-m", "gpud.agent.capture.look", "windows", tmp_path],
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout)["driver_store"] == {"nv_?.inf_amd64_5a1e": ["nvidia-smi"]}


def test_anything_else_is_a_mistake_in_its_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["look", "macos", "/"])
    assert look.main() == 2
