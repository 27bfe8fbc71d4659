"""The machine, told by files below a root of the test's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpud.agent import platform

if TYPE_CHECKING:
    from pathlib import Path

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nID=debian\n'


def sysroot(root: Path, kernel: str | None = None, os_release: str | None = None) -> str:
    """Write what a machine with this kernel and this distribution shows."""
    for path, text in (("proc/sys/kernel/osrelease", kernel), ("etc/os-release", os_release)):
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    "kernel",
    [
        "5.15.167.4-microsoft-standard-WSL2",
        "6.6.87.2-microsoft-standard-WSL2",
        "4.19.128-microsoft-standard",
        "6.1.38-microsoft-standard",
        "6.11.0-WSL2-STABLE+",
    ],
)
def test_every_kernel_seen_in_wsl2_is_wsl_2(kernel: str, tmp_path: Path) -> None:
    found = platform.facts(sysroot(tmp_path, f"{kernel}\n"))
    assert found == {"kernel": kernel, "wsl": "2"}


def test_a_kernel_of_wsl1_is_wsl_1(tmp_path: Path) -> None:
    found = platform.facts(sysroot(tmp_path, "4.4.0-19041-Microsoft\n"))
    assert found == {"kernel": "4.4.0-19041-Microsoft", "wsl": "1"}


@pytest.mark.parametrize(
    "kernel", ["6.1.0-13-amd64", "6.8.0-45-generic", "6.8.0-1015-azure", "4.4.0-210-generic"]
)
def test_an_ordinary_linux_is_no_wsl(kernel: str, tmp_path: Path) -> None:
    assert platform.facts(sysroot(tmp_path, f"{kernel}\n"))["wsl"] == ""


@pytest.mark.parametrize(
    ("os_release", "distro"),
    [
        (DEBIAN, "Debian GNU/Linux 12 (bookworm)"),
        ("NAME=x\nPRETTY_NAME=Void\n", "Void"),
        ('PRETTY_NAME=""\nNAME=x\n', ""),
    ],
)
def test_the_distribution_is_what_it_calls_itself(
    os_release: str, distro: str, tmp_path: Path
) -> None:
    assert platform.facts(sysroot(tmp_path, os_release=os_release)) == {"distro": distro}


@pytest.mark.parametrize("os_release", ["", "NAME=x\n", "# PRETTY_NAME=commented\n"])
def test_a_distribution_without_a_name_is_absent(os_release: str, tmp_path: Path) -> None:
    assert platform.facts(sysroot(tmp_path, "6.1.0\n", os_release)).keys() == {"kernel", "wsl"}


def test_what_cannot_be_read_is_absent(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/osrelease").mkdir(parents=True)
    assert platform.facts(str(tmp_path)) == {}
    assert platform.facts(str(tmp_path / "nowhere")) == {}


def test_bytes_that_are_no_text_stop_nothing(tmp_path: Path) -> None:
    root = sysroot(tmp_path, "", "")
    (tmp_path / "proc/sys/kernel/osrelease").write_bytes(b"6.1.0-\xff\xfe\n" + b"x" * 10_000)
    assert platform.facts(root)["kernel"].startswith("6.1.0-\N{REPLACEMENT CHARACTER}")
    assert len(platform.facts(root)["kernel"]) <= 4096


def test_a_boot_has_a_name_that_stays() -> None:
    assert re.fullmatch(r"[0-9a-f-]{36}", platform.boot_id())
    assert platform.boot_id() == platform.boot_id()


def test_a_container_is_told_by_the_mark_of_its_engine(tmp_path: Path) -> None:
    root = sysroot(tmp_path, "6.1.0\n")
    assert "container" not in platform.facts(root)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert platform.facts(root)["container"] == "1"
