"""A bare distribution as ``wsl --install`` leaves it, and a network for it while it needs one."""

from __future__ import annotations

import configparser
import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.debian import add_user, clone_into, make_debian
from tests.shell.world import USER
from tests.standins.build import build_libcuda, build_libnvml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.wsl.machine import Machine

HERE = Path(__file__).parent
UID, PASSWORD = 1000, "correct horse"
WSL_CONF = f"[boot]\nsystemd=false\n\n[user]\ndefault={USER}\n"
PROXY = ("127.0.0.1", 3128)
"""All of the network that there is in there, and only while a test lets it be there."""


def make_distribution(tree: Path, release: str) -> None:
    """Fill ``tree`` with what ``wsl --install`` leaves: Debian, a user with a password and sudo.

    Besides: in ``~/gpud`` a clone of what is committed here.
    """
    make_debian(tree, "python3", "sudo", "ca-certificates", "bash", release=release)
    add_user(tree, USER, UID, "--groups=sudo")
    subprocess.run(
        ["chroot", tree, "chpasswd"], input=f"{USER}:{PASSWORD}\n", text=True, check=True
    )
    proxy = "http://{}:{}".format(*PROXY)
    pip = configparser.ConfigParser()
    pip.read(tree / "etc/pip.conf")
    pip.read_dict({"global": {"proxy": proxy}})
    with (tree / "etc/pip.conf").open("w") as written:
        pip.write(written)
    for name, text in {
        "etc/sudoers.d/log": "Defaults logfile=/var/log/sudo.log\n",
        "etc/wsl.conf": WSL_CONF,
        "etc/hostname": "laptop\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 laptop\n",
        "etc/apt/apt.conf.d/99proxy": "".join(
            f'Acquire::{scheme}::Proxy "{proxy}";\n' for scheme in ("http", "https")
        ),
        "etc/ld.so.conf.d/ld.wsl.conf": "/usr/lib/wsl/lib\n",
    }.items():
        (tree / name).write_text(text)
    lib = tree / "usr/lib/wsl/lib"
    lib.mkdir(parents=True)
    build_libcuda(lib)
    build_libnvml(lib)
    shutil.copy(HERE.parent / "wsl/init.py", tree / "init")
    clone_into(tree, HERE.parents[1], USER, f"/home/{USER}")


@contextlib.contextmanager
def connected(machine: Machine) -> Iterator[None]:
    """Let a machine that has booted reach the servers that an installation needs."""
    line = [
        sys.executable,
        "-I",
        str(HERE / "network.py"),
        str(machine.init),
        PROXY[0],
        str(PROXY[1]),
    ]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as network:
        try:
            assert network.stdout is not None
            assert network.stdout.readline() == b"listening\n"
            yield
        finally:
            network.kill()
