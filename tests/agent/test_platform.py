"""Facts of the machine, by files below a root of the test's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpud.agent import platform

if TYPE_CHECKING:
    from pathlib import Path

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nID=debian\n'

WSL2 = "5.15.167.4-microsoft-standard-WSL2"


def sysroot(root: Path, kernel: str | None = None, os_release: str | None = None) -> str:
    """Write what a machine with this kernel and this distribution shows."""
    for path, text in (("proc/sys/kernel/osrelease", kernel), ("etc/os-release", os_release)):
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("kernel", "wsl"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", "2"),
        ("4.19.128-microsoft-standard", "2"),
        ("6.11.0-WSL2-STABLE+", "2"),
        ("4.4.0-19041-Microsoft", "1"),
        ("6.1.0-13-amd64", ""),
        ("6.8.0-1015-azure", ""),
        ("4.4.0-210-generic", ""),
    ],
)
def test_kernel_says_whether_this_is_wsl(kernel: str, wsl: str, tmp_path: Path) -> None:
    assert platform.facts(sysroot(tmp_path, f"{kernel}\n")) == {"kernel": kernel, "wsl": wsl}


@pytest.mark.parametrize(
    ("os_release", "distro"),
    [
        (DEBIAN, "Debian GNU/Linux 12 (bookworm)"),
        ("NAME=x\nPRETTY_NAME=Void\n", "Void"),
        ('PRETTY_NAME=""\nNAME=x\n', ""),
        ("", None),
        ("# PRETTY_NAME=commented\n", None),
    ],
)
def test_distribution_is_what_it_calls_itself(
    os_release: str, distro: str | None, tmp_path: Path
) -> None:
    assert platform.facts(sysroot(tmp_path, os_release=os_release)).get("distro") == distro


def test_unreadable_facts_are_absent_and_foreign_bytes_stop_nothing(tmp_path: Path) -> None:
    assert platform.facts(str(tmp_path / "nowhere")) == {}
    (tmp_path / "proc/sys/kernel/osrelease").mkdir(parents=True)
    assert platform.facts(str(tmp_path)) == {}
    root = sysroot(tmp_path / "other", "")
    release = tmp_path / "other/proc/sys/kernel/osrelease"
    release.write_bytes(b"6.1.0-\xff\xfe\n" + b"x" * 10_000)
    kernel = platform.facts(root)["kernel"]
    assert kernel.startswith("6.1.0-\N{REPLACEMENT CHARACTER}")
    assert len(kernel) <= 4096


def test_boot_has_a_name_that_stays() -> None:
    assert re.fullmatch(r"[0-9a-f-]{36}", platform.boot_id())
    assert platform.boot_id() == platform.boot_id()


def test_container_is_recognised_by_the_mark_of_its_engine(tmp_path: Path) -> None:
    root = sysroot(tmp_path, "6.1.0\n")
    assert "container" not in platform.facts(root)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert platform.facts(root)["container"] == "1"
