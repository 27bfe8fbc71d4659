"""Debian packages that gpud needs, where they are missing."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.install import manifest
from gpud.install.console import InstallError, output
from gpud.install.people import group_exists, in_group
from gpud.install.setup import Done, PlanLine, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpud.install.setup import Execution, Plan, Setup

INTERRUPTED = Path("/var/lib/dpkg/updates")
OPTIONS = ("-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3")


def install(setup: Execution, why: str, names: list[str], failed: Callable[[], None]) -> Plan:
    """Plan to install packages."""
    if shutil.which("apt-get") is None:
        called = " ".join(names)
        setup.console.warn(
            f"this is not Debian or Ubuntu; please install what {called} is called here ({why})"
        )
        failed()
        return
    if not setup.dry:
        yield PlanLine(f"Debian packages to install: {' '.join(names)}\n  why: {why}")
    if not setup.apt_updated:
        setup.apt_updated = True
        old = f"the package lists may be old; see {setup.console.log}"
        yield Step(
            "apt-get update",
            lambda: _apt_get(setup, "update"),
            failed=lambda: setup.console.warn(old),
        )
    yield Step(
        f"apt-get install {' '.join(names)}",
        lambda: _apt_get(setup, "install", "-y", "--no-install-recommends", *names),
        failed=failed,
    )


def _apt_get(setup: Execution, *words: str) -> None:
    # RUNLEVEL=1: without systemd, a package that brings a service does not start it.
    environ = ("env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
    root = () if os.geteuid() == 0 else ("sudo", "--")
    if INTERRUPTED.is_dir() and any(INTERRUPTED.iterdir()):  # apt-get installs nothing before this
        setup.console.run(*root, *environ, "dpkg", "--configure", "-a")
    setup.console.run(*root, *environ, "apt-get", *OPTIONS, *words)


def sudo(setup: Setup) -> Plan:
    """Plan for sudo, through which an opened shell starts gpud."""
    if shutil.which("visudo"):
        yield Done("sudo")
        return

    def missing() -> None:
        raise InstallError("there is no sudo here", "install it, then run this again")

    yield from install(setup, "an opened shell starts gpud through it", ["sudo"], missing)


def docker_is_here() -> bool:
    """Return whether there is a Docker of any kind."""
    socket = Path("/var/run/docker.sock")
    return (
        shutil.which("dockerd") is not None
        or socket.is_socket()
        or Path("/mnt/wsl/docker-desktop").is_dir()
    )


def docker(setup: Setup) -> Plan:
    """Plan for Docker where there is none, and for the group of who may use it."""
    new = False
    joins = setup.login != "root"
    if setup.options.no_docker or docker_is_here():
        yield Done("Docker")
    else:
        names = ["docker.io", "iptables"]
        # Where the client is a package of its own, docker.io alone gives nobody a docker command.
        if output("apt-cache", "show", "docker-cli") is not None:
            names.append("docker-cli")
        # Noted before: after an interruption there is a Docker, and nobody would know whose.
        if joins and not in_group(setup.login, "docker") and not setup.dry:
            manifest.note(f"member {setup.login}")
        why = "there is no Docker here, and gpud keeps it running"
        sorry = f"Docker could not be installed; {setup.console.log} says why. gpud runs without"
        left = len(setup.later)
        yield from install(setup, why, names, setup.left(sorry))
        new = len(setup.later) == left
    noted = f"member {setup.login}" in manifest.lines()
    here = group_exists("docker") or (setup.dry and new)
    if not joins or not here or not (new or noted):
        return
    if in_group(setup.login, "docker"):
        yield Done(f"group docker ({setup.login})")
        return
    title = f"{setup.login} into the group docker (who is in it can become root)"
    join = partial(setup.console.run, "usermod", "-aG", "docker", setup.login)
    yield Step(title, join, "usermod says why")
    setup.new_shell.append("the group docker")
