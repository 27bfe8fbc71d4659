"""The agent as its parent sees it: its user, its command, and when it is started again."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.clock import Backoff
from gpud.core.errors import ConfigError
from gpud.core.report import FIX, AgentReport, ProcessRef
from gpud.core.settings import GROUP, LOCK, SOCKET
from gpud.root import drop, files, process

if TYPE_CHECKING:
    from gpud.core.settings import Settings

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"
MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""For glibc: the agent's few threads share one heap, and what is free at its end is given back."""
LAST_LINES = 5
CHECK_S, LARGEST_WORDS = 10.0, 1 << 16
SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
LONGEST_REST_AFTER_A_KILL_S = 1.0
"""Somebody ended it, or memory ran out: no fault of its own, and soon over."""
BACKOFF = Backoff()


def choose_user(settings: Settings) -> pwd.struct_passwd | None:
    """Choose whom the agent runs as; None when we are not root and it runs as ourselves.

    Errors: as those of ``check_user``.
    """
    if os.geteuid() != 0:
        return None
    if user := check_user(settings):
        return user
    candidates: list[str | int] = ["gpud"]
    caller = os.environ.get("SUDO_UID", "")
    if caller.isascii() and caller.isdigit():
        candidates.append(int(caller))
    if os.path.isdir(settings.home):  # noqa: PTH112  # a string from the settings
        candidates.append(Path(settings.home).stat().st_uid)
    for who in candidates:
        try:
            user = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
        except KeyError:
            continue
        if user.pw_uid != 0:
            return user
    return pwd.getpwnam("nobody")


def check_user(settings: Settings) -> pwd.struct_passwd | None:
    """Look up the user that the settings name, None where they name none.

    Errors: ``ConfigError`` for one that does not exist, and for root.
    """
    name = settings.agent.user
    if not name:
        return None
    fix = "name another user, or leave agent.user empty for the system user gpud"
    try:
        user = pwd.getpwnam(name)
    except KeyError as error:
        raise ConfigError(f"agent.user: there is no user {name}", fix=fix) from error
    if user.pw_uid == 0:
        raise ConfigError(f"agent.user: {name} is root, and the agent never runs as root", fix=fix)
    return user


def check_files(settings: Settings, config: Path) -> None:
    """Let the agent's user read the settings files, where we are root.

    That user may stop the process that looks, or write without end: then nothing is known.
    Errors: ``ConfigError``, with the fix.
    """
    user = choose_user(settings)
    if user is None:
        return
    null, until_s, words = subprocess.DEVNULL, time.monotonic() + CHECK_S, b""
    line = [*command_line(settings, user, config), "--check"]
    with subprocess.Popen(line, stdin=null, stdout=null, stderr=subprocess.PIPE, env={}) as ran:
        assert ran.stderr is not None  # noqa: S101  # PIPE above
        pipe = ran.stderr.fileno()
        while select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))[0]:
            words += (part := os.read(pipe, LARGEST_WORDS))
            if not part or len(words) > LARGEST_WORDS:
                break
        ran.kill()
    if ran.returncode > 0:
        text = words.decode(errors="replace").strip().removeprefix("gpud: ")
        message, _, fix = text.partition(FIX)
        raise ConfigError(message, fix=fix or None)


def default_command(settings: Settings, config_path: Path | None) -> list[str]:
    """Give the command line of the agent itself."""
    line = [sys.executable, "-I", "-m", "gpud.agent", "--home", settings.home]
    return line if config_path is None else [*line, "--config", str(config_path)]


def command_line(
    settings: Settings, user: pwd.struct_passwd | None, config_path: Path | None
) -> list[str]:
    """Give the command line that becomes the user and runs the agent."""
    line = [sys.executable, "-I", "-m", "gpud.root.drop", "--parent", str(os.getpid())]
    if user is not None:
        line += ["--user", user.pw_name]
        if settings.home == "/" and people_gid() is not None:
            line += ["--group", GROUP]  # it writes into the lock that people take too
        for need in sorted(drop.needed(settings, config_path)):
            line += ["--need", str(need)]
    return [*line, "--", *default_command(settings, config_path)]


def prepare(settings: Settings, user: pwd.struct_passwd | None) -> None:
    """Make every directory with its owner. Root opens nothing below what the agent owns."""
    owner = None if user is None else (user.pw_uid, user.pw_gid)
    people = people_gid() if settings.home == "/" and user is not None else None
    run_dir, log_dir = Path(settings.run_dir), Path(settings.log_dir)
    files.directory(run_dir, 0o755)
    files.directory(run_dir / "agent", 0o755, owner)
    files.directory(run_dir / SOCKET[0], 0o755, owner)
    files.link(run_dir / "agent.json", "agent/agent.json")
    # Opened by every user's shell: its name is root's, so that it stays a plain file.
    files.handed(run_dir / "notice", owner)
    files.handed(run_dir / LOCK, owner if owner is None or people is None else (owner[0], people))
    # A disk that is full or read-only stops the history, which the agent reports; never gpud.
    with contextlib.suppress(OSError):
        files.directory(Path(settings.state_dir), 0o755, owner)
    files.directory(log_dir, 0o755, None if people is None else (0, people), setgid=bool(people))
    logs = owner if owner is None or people is None else (owner[0], people)
    files.directory(log_dir / "agent", 0o755, logs, setgid=bool(people))


def may_write(user: pwd.struct_passwd | None) -> bool:
    """Whether our own output is for a user too: a terminal is for nobody but its owner.

    Who has one open reads what is typed there, and steers what is shown.
    """
    return user is None or all(
        not os.isatty(descriptor) or os.fstat(descriptor).st_uid == user.pw_uid
        for descriptor in (1, 2)
    )


def people_gid() -> int | None:
    """Give the number of the group of people who may ask the agent; None where there is none."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return None


@dataclass(slots=True)
class AgentManager:
    """One agent at a time. Units: monotonic seconds."""

    settings: Settings
    user: pwd.struct_passwd | None
    config_path: Path | None
    foreground: bool
    child: subprocess.Popen[bytes] | None = None
    process: ProcessRef | None = None
    started_s: float = 0.0
    next_try_s: float = 0.0
    failures: int = 0
    restarts: int = 0
    detail: str | None = None
    fix: str | None = None

    def start(self, now_s: float) -> None:
        """Start it. Errors: none; one that cannot start is an end, with its back-off."""
        self.started_s = now_s
        log = Path(self.settings.log_dir, "agent.log")
        output = None
        try:
            if not self.foreground:
                output = files.append(log)
            self.child = subprocess.Popen(
                command_line(self.settings, self.user, self.config_path),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is the supervisor's to hear, and to pass on
            )
            self.process = process.ref(self.child.pid)
        except OSError as error:
            self._failed(f"cannot start: {error}", now_s, 0.0)
        finally:
            if output is not None:
                os.close(output)

    def ended(self, status: int, now_s: float, jitter: float) -> None:
        """Take note of the end of the child, by its wait status."""
        code = os.waitstatus_to_exitcode(status)
        if self.child is not None:
            self.child.returncode = code
        how = f"ended by signal {-code}" if code < 0 else f"exited with code {code}"
        if code > 0 and not self.foreground:
            last = files.tail(Path(self.settings.log_dir, "agent.log"), LAST_LINES)
            how = f"{how}: {last[-1]}" if last else how
        how, _, fix = how.partition(FIX)
        self._failed(how, now_s, jitter)
        self.fix = fix or None
        if -code in SENT_FROM_OUTSIDE:
            self.next_try_s = min(self.next_try_s, now_s + LONGEST_REST_AFTER_A_KILL_S)

    def report(self) -> AgentReport:
        """Say how it is."""
        return AgentReport(
            state="running" if self.process is not None else "backoff",
            process=self.process,
            user=None if self.user is None else self.user.pw_name,
            restarts=self.restarts,
            detail=self.detail,
            fix=self.fix,
        )

    def _failed(self, how: str, now_s: float, jitter: float) -> None:
        self.failures = BACKOFF.failures(self.failures, now_s - self.started_s)
        self.next_try_s = now_s + BACKOFF.delay_s(self.failures, jitter)
        self.restarts += 1
        self.detail = how
        self.child = self.process = None

    def _environment(self) -> dict[str, str]:
        clean = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": self.settings.state_dir, **MEMORY}
        if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
            clean |= {name: value for name, value in os.environ.items() if name[:5] == "GPUD_"}
        return clean
