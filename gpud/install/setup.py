"""One installation: what was asked for, and its steps as data."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpud.install import manifest
from gpud.install.places import fresh

if TYPE_CHECKING:
    import argparse
    import pwd
    from collections.abc import Iterator

    from gpud.install.console import Console
    from gpud.install.source import Source

    Plan = Iterator["Step | Done | PlanLine"]


class Step(NamedTuple):
    """One change: ``notes`` say in the manifest how it is undone, and are written before it."""

    title: str
    do: Callable[[], object]
    fix: str = "the lines above say why"
    notes: tuple[str, ...] = ()
    failed: Callable[[], None] | None = None
    """What goes on when it fails; without, that is the end."""


class Done(NamedTuple):
    """One thing that is as it should be."""

    title: str


class PlanLine(NamedTuple):
    """One line for the reader."""

    text: str


@dataclass
class Execution:
    """A plan that is carried out, or in a dry run said, and what is left to say at the end."""

    options: argparse.Namespace
    command: str
    console: Console
    later: list[str] = field(default_factory=list, kw_only=True)
    apt_updated: bool = field(default=False, kw_only=True)

    @property
    def dry(self) -> bool:
        """Whether nothing may change."""
        return bool(self.options.dry_run)

    def left(self, text: str) -> Callable[[], None]:
        """Return what says at the end that something is left to do."""
        return lambda: self.later.append(text)

    def carry_out(self, plan: Plan) -> None:
        """Do the steps, or say in a dry run what they would do. Errors: ``InstallError``."""
        for item in plan:
            if isinstance(item, Done):
                self.console.say(f"  {item.title}: nothing to do")
            elif isinstance(item, PlanLine):
                self.console.say(item.text)
            elif self.dry:
                self.console.say(f"  would: {item.title}")
            else:
                self._do(item)

    def _do(self, step: Step) -> None:
        for note in step.notes:
            manifest.note(note)
        if step.failed is None:
            self.console.step(step.title, step.fix, step.do)
        elif self.console.attempt(step.title, step.do):
            step.failed()


@dataclass
class Setup(Execution):
    """What was asked for of an installation, and where it comes from."""

    source: Source
    person: pwd.struct_passwd
    python: Path
    scratch: Path
    apprise: bool
    wheels: dict[Path, str | None] | None = None
    """Packages to install from, with the hash that is known of some; None: the network has them."""
    pip: list[str | Path] = field(default_factory=list)
    """The words that run the pip of this installation."""
    new_shell: list[str] = field(default_factory=list)
    upgrade: bool = False
    previous: bool = False
    """Whether the tree from before an upgrade is still there."""

    @property
    def login(self) -> str:
        """The name of the person whose shells start gpud."""
        return self.person.pw_name

    def only_root(self, title: str) -> PlanLine:
        """Say that only root can look at something."""
        return PlanLine(f"  {title}: only root can look (sudo {self.command} --dry-run)")

    def link(self, path: Path, target: Path, otherwise: str) -> Plan:
        """Plan a link of root's; what somebody else made is left alone."""
        if path.is_symlink() and path.readlink() == target:
            yield Done(str(path))
        elif os.path.lexists(path):
            self.later.append(f"{path} is there and is not gpud's; it was left alone. {otherwise}")
        else:

            def make() -> None:
                make_parents(path)
                path.symlink_to(target)

            yield Step(str(path), make, "ln says why", (*parents(path), f"link {path}"))

    def file(self, path: Path, text: bytes, mode: int = 0o644) -> Plan:
        """Plan a file of root's that gpud made; what somebody else made is left alone."""
        if hidden(path):
            yield self.only_root(str(path))
        elif _is(path, text, mode):
            yield Done(str(path))
        elif os.path.lexists(path) and f"file {path}" not in manifest.lines():
            text_left = "is there and was not made by this; it was left alone. Move it away, then"
            self.later.append(f"{path} {text_left} run this again")
        else:
            notes = (*parents(path), f"file {path}")
            yield Step(str(path), lambda: put(path, text, mode), notes=notes)


def requirements(*, apprise: bool) -> list[str]:
    """Return the requirement files of what is installed."""
    return ["requirements.txt", *(["requirements-apprise.txt"] if apprise else [])]


def parents(path: Path) -> tuple[str, ...]:
    """Return the notes for directories that have to be made, the outermost first."""
    return tuple(f"dir {each}" for each in reversed(path.parents) if not each.is_dir())


def make_parents(path: Path) -> None:
    """Make what ``parents`` names."""
    for note in parents(path):
        Path(note.partition(" ")[2]).mkdir(0o755)


def put(path: Path, text: bytes, mode: int, group: int = 0) -> None:
    """Write a file of root's, whole or not at all; never through a link."""
    make_parents(path)
    new = fresh(path)
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        os.fchown(descriptor, 0, group)
        os.fchmod(descriptor, mode)
    new.replace(path)


def hidden(path: Path) -> bool:
    """Return whether only root can look at a file."""
    if path.parent.is_dir() and not os.access(path.parent, os.X_OK):
        return True
    return path.exists() and not os.access(path, os.R_OK)


def _is(path: Path, text: bytes, mode: int) -> bool:
    if not os.path.lexists(path):
        return False
    facts = path.lstat()
    same = (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (0, 0, mode)
    return stat.S_ISREG(facts.st_mode) and same and path.read_bytes() == text


def removed(*paths: Path) -> None:
    """Take away trees and files, also what is not there."""
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            continue
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():  # what an interrupted run had started may have been at work there still
            time.sleep(1.0)
            shutil.rmtree(path)
