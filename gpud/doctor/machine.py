"""The machine as a check sees it: files below ``sysroot``, gpud's own reports, the person.

Every read is bounded and never waits: a FIFO, a device or a directory in a file's place is an
answer, and so is a missing permission. What can hang all the same (9p, a driver) is the runner's
business: each check has a process of its own.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import subprocess
import time
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpud.core.advice import CONTAINER_MARKS, Platform, Situation, platform, words
from gpud.core.clock import Instant
from gpud.core.wsl import Sections, mounts_at, sections, switch, version
from gpud.doctor import reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpud.core.errors import ConfigError
    from gpud.core.report import RootReport
    from gpud.core.settings import Settings

LARGEST = 1024 * 1024
MOST_NAMES = 4096
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND_S = 1.0
"""How long a program we ask may take; all of them together stay below two seconds."""


class Unreadable(Exception):  # noqa: N818  # reads as the fact it states
    """Something is there and cannot be looked at; the text names it and says why."""


class Kind(StrEnum):
    """What lies at a path, links followed."""

    ABSENT = "absent"
    FILE = "file"
    DIRECTORY = "directory"
    CHARACTER = "character device"
    SOCKET = "socket"
    OTHER = "something else"


@dataclass(frozen=True, slots=True)
class Person:
    """Whose machine this is: the one who asked, also through sudo."""

    uid: int
    name: str
    home: str
    login_shell: str
    groups: tuple[int, ...] = ()  # of this session, which may be older than /etc/group


@dataclass(frozen=True, slots=True)
class Ended:
    """What a program said. ``code`` is None when it could not be started or took too long."""

    code: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything a check may look at. Paths are those of the machine, found below ``sysroot``."""

    settings: Settings
    person: Person
    environ: Mapping[str, str]
    now: Instant
    root: RootReport | None = None  # what root says, while it is fresh
    root_silence: str = ""  # why it says nothing
    agent: Mapping[str, Any] = field(default_factory=dict)  # agent.json, while it is fresh
    trouble: ConfigError | None = None  # why ``settings`` are the defaults

    @property
    def installed(self) -> bool:
        """An installed gpud begins at ``/``; everything else is a development run."""
        return self.settings.home == "/"

    @property
    def kernel(self) -> str | None:
        """The running kernel's release."""
        text = self.text("/proc/sys/kernel/osrelease")
        return text.strip() if text and text.strip() else None

    @property
    def wsl(self) -> str:
        """``"1"``, ``"2"`` or ``""``; a container on WSL is not WSL."""
        return "" if self.container or self.kernel is None else version(self.kernel)

    @property
    def container(self) -> bool:
        """Containers share the host's kernel name, so this is asked first."""
        return any(self.exists(mark) for mark in CONTAINER_MARKS)

    @property
    def platform(self) -> Platform:
        """What kind of machine a fix is for."""
        return platform(self.kernel or "", container=self.container)

    def fix(self, situation: Situation) -> str:
        """Say what helps here."""
        return words(situation, self.platform)

    @property
    def wsl_conf(self) -> Sections:
        """What ``/etc/wsl.conf`` says; empty when there is none."""
        return sections(self.text("/etc/wsl.conf") or "")

    @property
    def mounts_at(self) -> str:
        """What the paths of Windows drives begin with."""
        return mounts_at(self.wsl_conf)

    @property
    def systemd(self) -> bool:
        """Say whether systemd runs the machine right now."""
        comm = (self.text("/proc/1/comm") or "").strip()
        return comm == "systemd" and self.kind("/run/systemd/system") is Kind.DIRECTORY

    def health(self, component: str) -> Mapping[str, Any]:
        """Give what the agent says of one of its components; empty when it says nothing."""
        healths = self.agent.get("health")
        found = healths.get(component) if isinstance(healths, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def no_gpu(self) -> str | None:
        """Why no NVIDIA GPU is to be expected here, by the agent's word; None when one is.

        Without an agent only a switch in ``wsl.conf`` is as clear as that.
        """
        said = self.health("cuda")
        if said.get("reason") in {"no_gpu", "disabled"} and not said.get("level"):
            return str(said.get("detail"))
        if self.wsl == "2" and switch(self.wsl_conf, "gpu", "enabled") is False:
            return "[gpu] enabled=false in wsl.conf switches the GPU off"
        return None

    def at(self, path: str) -> Path:
        """Give the place of a path of the machine."""
        return Path(self.settings.sysroot, path.lstrip("/"))

    def exists(self, path: str) -> bool:
        """Say whether anything is there. Errors: ``Unreadable``."""
        return self.kind(path) is not Kind.ABSENT

    def kind(self, path: str) -> Kind:
        """Say what lies there, links followed. Errors: ``Unreadable``."""
        try:
            mode = self.at(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return Kind.ABSENT
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot look at {path}: {_words(error)}") from error
        tests = (
            (stat.S_ISREG, Kind.FILE),
            (stat.S_ISDIR, Kind.DIRECTORY),
            (stat.S_ISCHR, Kind.CHARACTER),
            (stat.S_ISSOCK, Kind.SOCKET),
        )
        return next((kind for test, kind in tests if test(mode)), Kind.OTHER)

    def text(self, path: str) -> str | None:
        """Give the first ``LARGEST`` bytes of a file as text, None when there is none.

        Errors: ``Unreadable`` for anything that is there and is no readable file.
        """
        try:
            return contents(self.at(path))
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot read {path}: {_words(error)}") from error

    def names(self, path: str) -> tuple[str, ...]:
        """List a directory, sorted; empty when there is none. Errors: ``Unreadable``."""
        try:
            with os.scandir(self.at(path)) as entries:
                return tuple(sorted(entry.name for entry in islice(entries, MOST_NAMES)))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot list {path}: {_words(error)}") from error

    def processes(self) -> Iterator[tuple[int, str]]:
        """Yield pid and name of every process that can be seen."""
        for name in self.names("/proc"):
            if name.isascii() and name.isdigit():
                try:
                    comm = self.text(f"/proc/{name}/comm")
                except Unreadable:
                    continue  # it ended, or is hidden from us
                if comm is not None:
                    yield int(name), comm.strip()

    def program(self, name: str) -> str | None:
        """Find a program on the system's own PATH, which is root's and not the person's."""
        for directory in PATH.split(":"):
            place = self.at(f"{directory}/{name}")
            if os.access(place, os.X_OK) and place.is_file():
                return str(place)
        return None

    def ask(self, command: Sequence[str], *, stdin: str = "", within_s: float = COMMAND_S) -> Ended:
        """Run a program that only reads, in plain English, and kill it when it takes too long."""
        try:
            ran = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=within_s,
                cwd="/",
                env={"PATH": PATH, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"},
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return Ended(None, "", f"no answer within {within_s:g} s")
        except OSError as error:
            return Ended(None, "", _words(error))
        return Ended(ran.returncode, ran.stdout[:LARGEST], ran.stderr[:LARGEST])


def here(
    settings: Settings, environ: Mapping[str, str], trouble: ConfigError | None = None
) -> Machine:
    """Look at this machine: the clocks, the person, and what gpud says of itself right now."""
    now = Instant(time.time(), time.monotonic())
    root, silence = reports.root(Path(settings.run_dir, "root.json"), now)
    agent = reports.agent(Path(settings.run_dir, "agent.json"), now) if root else {}
    return Machine(settings, person(environ), environ, now, root, silence, agent, trouble)


def person(environ: Mapping[str, str]) -> Person:
    """Name the one who asked. Under sudo that is the caller, whose home and shell are looked at."""
    uid, groups = os.getuid(), tuple(os.getgroups())
    caller = environ.get("SUDO_UID", "")
    try:
        if uid == 0 and caller.isascii() and caller.isdigit() and int(caller):
            entry = pwd.getpwuid(int(caller))
            groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        else:
            entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError, OSError):
        return Person(uid, str(uid), environ.get("HOME", "/"), environ.get("SHELL", ""), groups)
    return Person(entry.pw_uid, entry.pw_name, entry.pw_dir, entry.pw_shell, groups)


def contents(path: Path) -> str | None:
    """Read a regular file without ever waiting for it; None when it is not there.

    Errors: ``OSError``, also for what is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(LARGEST).decode(errors="replace")


def _words(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
