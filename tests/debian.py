"""A Debian of a test's own, made with debootstrap; apt and pip reach what they reach here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RELEASE = "bookworm"
TAKEN_ALONG = (
    "etc/apt/apt.conf.d",
    "etc/apt/auth.conf.d",
    "usr/local/share/ca-certificates",
    "etc/resolv.conf",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
"""How apt and pip find their servers and certificates: directories and files, where they exist."""


def make_debian(tree: Path, *packages: str, release: str = RELEASE) -> None:
    """Fill ``tree`` with a minimal Debian and these packages.

    Errors: a failed test when this is not root, or debootstrap is missing or fails.
    """
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.fail("needs root and debootstrap: sudo apt-get install debootstrap")
    include = f"--include={','.join(packages)}"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", include, release, tree],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
    for name in TAKEN_ALONG:
        here = Path("/", name)
        if here.is_dir():
            shutil.copytree(here, tree / name, dirs_exist_ok=True)
        elif here.is_file():
            shutil.copy(here, tree / name)


def add_user(tree: Path, name: str, uid: int, *options: str) -> None:
    command = ["useradd", "--create-home", "--shell=/bin/bash", f"--uid={uid}", *options, name]
    subprocess.run(["chroot", tree, *command], check=True)


def allow_everything(tree: Path, user: str) -> None:
    """Let ``user`` become root without a password, as on many a cloud machine."""
    rule = tree / "etc/sudoers.d" / user
    rule.write_text(f"{user} ALL=(ALL) NOPASSWD: ALL\n")
    rule.chmod(0o440)


def clone_into(tree: Path, repository: Path, user: str, home: str) -> None:
    """Give ``user`` a fresh clone of what is committed in ``repository``, as ``~/gpud``."""
    subprocess.run(
        ["git", "clone", "-q", "--no-local", repository, f"{tree}{home}/gpud"], check=True
    )
    subprocess.run(["chroot", tree, "chown", "-R", f"{user}:", f"{home}/gpud"], check=True)
