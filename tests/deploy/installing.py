"""A person on an overlay of this machine, and the lines that install gpud for her."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.overlay import REAPER, Machine, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).resolve().parents[2]
USER = "gpud-someone"
HOME = f"/home/{USER}"
RULE = "etc/sudoers.d/gpud"
LARGE = {"linkify-it-py", "mdit-py-plugins", "numpy", "platformdirs", "pygments", "rich", "textual"}
"""Packages of `gpud top` and of probes that compare with the CPU: most of what is compiled."""
REQUIREMENTS = "deploy/requirements.txt"


def ask_for(checkout: Path, wanted: Callable[[str], bool]) -> None:
    """Let a checkout ask for some of its packages, and no others."""
    each = re.split(r"^(?=\w)", (checkout / REQUIREMENTS).read_text(), flags=re.MULTILINE)
    kept = "".join(lines for lines in each if wanted(lines.partition("==")[0]))
    (checkout / REQUIREMENTS).write_text(kept)


def project(wheel: Path) -> str:
    return wheel.name.partition("-")[0].replace("_", "-")


@contextlib.contextmanager
def whole(shared: Path) -> Iterator[None]:
    """Let the shared checkout ask for all packages for a while."""
    file = shared / "checkout" / REQUIREMENTS
    kept = file.read_bytes()
    file.write_bytes((ROOT / REQUIREMENTS).read_bytes())
    try:
        yield
    finally:
        file.write_bytes(kept)


@contextlib.contextmanager
def fresh(shared: Path, *layers: Path, first: tuple[str, ...] = REAPER) -> Iterator[Machine]:
    """A machine with one person on it, whose gpud would listen on a port of its own."""
    with machine(shared, *layers, first=first) as made:
        if not layers:
            made.well("useradd", "--create-home", "--shell=/bin/bash", USER)
        yield made


def settings(made: Machine, port: int, **dockerd: object) -> None:
    """Say what gpud is to do before it is installed: the installer leaves that alone."""
    lines = [f'[http]\nlisten = "127.0.0.1:{port}"\n[dockerd]']
    for key, value in (dockerd or {"policy": "off"}).items():
        shown = list(value) if isinstance(value, tuple) else value
        lines.append(f"{key} = {shown!r}".replace("'", '"'))
    made.well("mkdir", "-p", "/etc/gpud")
    (made.root / "etc/gpud/gpud.toml").write_text("\n".join(lines) + "\n")


def install(shared: Path, *options: str) -> list[str]:
    given = ["--user", USER, "--wheelhouse", str(shared / "wheels"), *options]
    return [str(shared / "checkout/deploy/install"), *given]


def uninstall(shared: Path, *options: str) -> list[str]:
    return [str(shared / "checkout/deploy/uninstall"), *options]


def left_behind(made: Machine, before: dict[str, str]) -> dict[str, str]:
    """Return what is not as it was before, but for what any program leaves.

    That is directories that something was in for a while, and the backups of useradd and userdel.
    """
    backups = {"etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-"}
    return {
        name: what
        for name, what in made.changed().items()
        if before.get(name) != what and not what.startswith("dir ")
        if name not in backups and not name.startswith("etc/sub")
    }


def loaded(name: str) -> Any:
    """Import a script of deploy/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"deploy/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
