"""The machine as a check reads it: files below ``sysroot``, gpud's own reports, the person.

Every read is bounded and never waits: a FIFO, a device or a directory in a file's place raises
``Unreadable``, and so does a missing permission.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from gpud import regular_file
from gpud.core import advice, wire, wsl
from gpud.core.advice import CONTAINER_MARKS, Platform, Situation
from gpud.core.clock import Instant
from gpud.core.errors import ConfigError
from gpud.core.health import Health, Level
from gpud.core.report import RootReport
from gpud.core.settings import Settings
from gpud.core.text import escaped
from gpud.core.wsl import Sections
from gpud.document.status import Status
from gpud.install.places import MANIFEST
from gpud.reports import published_by, root_report

FILE_LIMIT = 1024 * 1024
REPORT_LIMIT = 4 * 1024 * 1024
AGENT_STALE_AFTER_S = 60.0
"""The agent writes after a change, and without one every 6 s."""
NO_STATUS = Status()
MOST_NAMES = 4096
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND_LIMIT_S = 1.0
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
INTEROP = ("WSLInterop", "WSLInterop-late")
"""Names under which Windows programs are registered with the kernel."""

T = TypeVar("T")


class Unreadable(Exception):  # noqa: N818  # reads as the fact it states
    """Something is there and cannot be read; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person who asked, also through sudo."""

    uid: int
    name: str
    home: str
    login_shell: str
    groups: tuple[int, ...] = ()  # of this session, which may be older than /etc/group


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Output of a program. ``code`` is None if it could not be started or took too long."""

    code: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything that a check may read. Paths are those of the machine, below ``sysroot``."""

    settings: Settings
    person: Person
    environ: Mapping[str, str]
    now: Instant
    root: RootReport | None = None  # while it is fresh
    root_silence: str = ""  # why there is no report of root's
    agent: Status = NO_STATUS  # unless it is fresh
    settings_error: ConfigError | None = None  # why ``settings`` are the defaults
    command_limit_s: float = COMMAND_LIMIT_S  # for each program that is asked

    @property
    def installed(self) -> bool:
        """Return whether this is the installed gpud; anything else is a development run."""
        return self.settings.home == "/"

    @property
    def installer(self) -> str:
        """The command that installed gpud here, and mends and upgrades it."""
        noted = re.search(r"^owner (.+)$", self.text(str(MANIFEST)) or "", re.MULTILINE)
        return escaped(noted[1]) if noted else "deploy/install"

    @property
    def kernel(self) -> str:
        """The running kernel's release; empty if it cannot be read."""
        return (self.text("/proc/sys/kernel/osrelease") or "").strip()

    @property
    def container(self) -> bool:
        """Return whether this is a container, which shares the host's kernel."""
        return any(self.exists(mark) for mark in CONTAINER_MARKS)

    @property
    def wsl(self) -> str:
        """``"1"``, ``"2"`` or ``""``; a container on WSL is not WSL."""
        return "" if self.container else wsl.version(self.kernel)

    @property
    def platform(self) -> Platform:
        """Kind of machine that a fix is for."""
        return advice.platform(self.kernel, container=self.container)

    def fix(self, situation: Situation) -> str:
        """Return the fix of a situation in the words of this platform."""
        return advice.words(situation, self.platform)

    @property
    def wsl_conf(self) -> Sections:
        """Content of ``/etc/wsl.conf``; empty without the file."""
        return wsl.sections(self.text("/etc/wsl.conf") or "")

    def wsl_switch(self, section: str, key: str) -> bool | None:
        """Return a switch of ``/etc/wsl.conf``; None if it is not set."""
        return wsl.switch(self.wsl_conf, section, key)

    @property
    def drives(self) -> str:
        """Prefix of the paths of Windows drives."""
        return wsl.mounts_at(self.wsl_conf)

    @property
    def systemd(self) -> bool:
        """Return whether systemd is process 1."""
        comm = (self.text("/proc/1/comm") or "").strip()
        return comm == "systemd" and self.exists("/run/systemd/system")

    @property
    def interop(self) -> bool:
        """Return whether Windows programs are registered with the kernel."""
        texts = (self.text(f"/proc/sys/fs/binfmt_misc/{name}") or "" for name in INTEROP)
        return any(text.startswith("enabled") for text in texts)

    def health(self, component: str) -> Health | None:
        """Return the health of a component of the running agent."""
        return self.agent.health.get(component)

    @property
    def no_gpu(self) -> str | None:
        """Why no NVIDIA GPU is expected here, by the running agent; None if one is.

        Without an agent only a switch in ``wsl.conf`` is as clear as that.
        """
        cuda = self.health("cuda")
        if cuda and cuda.level == Level.OK and cuda.reason in {"no_gpu", "disabled"}:
            return str(cuda.detail)
        if self.wsl == "2" and self.wsl_switch("gpu", "enabled") is False:
            return "[gpu] enabled=false in wsl.conf switches the GPU off"
        return None

    def at(self, path: str) -> Path:
        """Return the place of a path of the machine."""
        return Path(self.settings.sysroot, path.lstrip("/"))

    def inside(self, place: str) -> str:
        """Return the machine's path of a place, links followed."""
        root = os.path.realpath(self.settings.sysroot).rstrip("/")
        return os.path.realpath(place).removeprefix(root)

    def stat(self, path: str) -> os.stat_result | None:
        """Stat a path, links followed; None if nothing is there. Errors: ``Unreadable``."""
        return self._read("look at", path, Path.stat)

    def exists(self, path: str) -> bool:
        """Return whether anything is there. Errors: ``Unreadable``."""
        return self.stat(path) is not None

    def text(self, path: str) -> str | None:
        """Read the beginning of a file; None if it does not exist. Errors: ``Unreadable``."""
        content = self._read("read", path, lambda place: regular_file.read(place, FILE_LIMIT))
        return None if content is None else content.decode(errors="replace")

    def names(self, path: str) -> tuple[str, ...]:
        """List a directory, sorted; empty if there is none. Errors: ``Unreadable``."""
        return self._read("list", path, _listed) or ()

    def _read(self, verb: str, path: str, look: Callable[[Path], T]) -> T | None:
        try:
            return look(self.at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise Unreadable(f"cannot {verb} {path}: {_reason(error)}") from error

    def account(self, path: str, name: str) -> list[str] | None:
        """Return the fields of a user or group in ``/etc/passwd`` or ``/etc/group``."""
        for line in (self.text(path) or "").splitlines():
            fields = line.split(":")
            if fields[0] == name and len(fields) >= len(("name", "password", "uid", "gid")):
                return fields
        return None

    def program(self, name: str) -> str | None:
        """Find a program on the system's own PATH, which is root's and not the person's."""
        for directory in PATH.split(":"):
            place = self.at(f"{directory}/{name}")
            if os.access(place, os.X_OK) and place.is_file():
                return str(place)
        return None

    def run(self, *command: str) -> CommandResult:
        """Run a program that only reads, in plain English; kill it if it takes too long."""
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=self.command_limit_s,
                cwd="/",
                env=ENVIRONMENT,
            )
        except subprocess.TimeoutExpired:
            return CommandResult(None, "", f"no answer within {self.command_limit_s:g} s")
        except OSError as error:
            return CommandResult(None, "", _reason(error))
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)


def _listed(place: Path) -> tuple[str, ...]:
    with os.scandir(place) as entries:
        return tuple(sorted(entry.name for entry in islice(entries, MOST_NAMES)))


def this_machine(
    settings: Settings, environ: Mapping[str, str], settings_error: ConfigError | None = None
) -> Machine:
    """Return this machine: the clocks, the person, and the running gpud's reports."""
    now = Instant(time.time(), time.monotonic())
    root, silence = root_report(Path(settings.run_dir, "root.json"), now)
    path = Path(settings.run_dir, "agent.json")
    agent = agent_status(path, now) if root else NO_STATUS
    if agent is not NO_STATUS and not published_by(path.stat().st_mtime, root):
        agent = NO_STATUS
    return Machine(settings, person(environ), environ, now, root, silence, agent, settings_error)


def agent_status(path: Path, now: Instant) -> Status:
    """Return the agent's document; an empty one where there is none, or an old one. Errors: none.

    The document of another version may not fit: it counts as none.
    """
    try:
        status = msgspec.json.decode(regular_file.read(path, REPORT_LIMIT), type=Status)
    except (OSError, *wire.UNREADABLE):
        return NO_STATUS
    return status if abs(now.wall_s - status.written_s) <= AGENT_STALE_AFTER_S else NO_STATUS


def person(environ: Mapping[str, str]) -> Person:
    """Return the person who asked; under sudo that is the caller."""
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


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
