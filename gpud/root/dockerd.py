"""dockerd at the edge: find it, start it, say whose it is, signal it.

A dockerd is ours when its environment names our run directory. That survives any crash of the
supervisor, needs no file and cannot be confused by a recycled pid.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.core.dockerd import Action, Exit
from gpud.core.report import Owner, ProcessRef
from gpud.root import files, process

if TYPE_CHECKING:
    from gpud.core.settings import Settings

MARK = "GPUD_KEEPER"
DEFAULT_SOCKETS = frozenset({"/run/docker.sock", "/var/run/docker.sock"})
DEFAULT_PIDFILES = frozenset({"/run/docker.pid", "/var/run/docker.pid"})
DESKTOP = "/mnt/wsl/docker-desktop"
REASON_LINES = 50
HELPER_END_S = 0.5
LARGEST_LOG = 10 * 1024 * 1024
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_UNITS = (
    "etc/systemd/system/multi-user.target.wants/docker.service",
    "etc/systemd/system/sockets.target.wants/docker.socket",
)
_NAMES = frozenset({"dockerd", "docker-containerd", "containerd"})


@dataclass(slots=True)
class Dockerd:
    """The one dockerd that belongs to ``settings.dockerd.socket``."""

    settings: Settings
    child: subprocess.Popen[bytes] | None = None
    started: ProcessRef | None = None
    trouble: str | None = None  # why the last start did not even begin

    @property
    def log(self) -> Path:
        """Where dockerd's own output goes."""
        return Path(self.settings.log_dir, "dockerd.log")

    def binary(self) -> str | None:
        """Give the absolute path of dockerd, None when there is none."""
        return shutil.which(self.settings.dockerd.binary, path=PATH)

    def find(self, listener: int | None) -> ProcessRef | None:
        """Give the living dockerd: our child, else who listens, else who the pid file names."""
        if self.started is not None and process.alive(self.started):
            return self.started
        for pid in (listener, _pid_in(Path(self.settings.dockerd.pidfile))):
            if pid is not None and process.name(pid) == "dockerd":
                found = process.ref(pid)
                if found is not None:
                    return found
        return None

    def owner(self, found: ProcessRef | None, *, listens: bool) -> Owner:
        """Say whose dockerd this is, or who would own the next one."""
        if found is not None and (found == self.started or self._marked(found.pid)):
            return Owner.GPUD
        if os.path.realpath(self.settings.dockerd.socket).startswith(DESKTOP):
            return Owner.DOCKER_DESKTOP
        root = Path(self.settings.sysroot)
        if (
            self.settings.dockerd.socket in DEFAULT_SOCKETS
            and (root / "run/systemd/system").is_dir()
            and any(os.path.lexists(root / unit) for unit in _UNITS)
        ):
            return Owner.SYSTEMD
        return Owner.OTHER if found is not None or listens else Owner.NONE

    def act(self, action: Action, target: ProcessRef | None) -> None:
        """Do what was decided. Errors: none; a start that fails is told by ``trouble``."""
        if action is Action.START:
            self._start()
        elif action is Action.TERMINATE and target is not None:
            process.send(target, signal.SIGTERM)
        elif action is Action.KILL and target is not None:
            process.send(target, signal.SIGKILL)

    def ended(self, status: int) -> Exit:
        """Turn the wait status of our child into how it ended, with its last words."""
        code = os.waitstatus_to_exitcode(status)
        if self.child is not None:
            self.child.returncode = code
        self.child = self.started = None
        lines = files.tail(self.log, REASON_LINES)
        return Exit(signal=-code, log=lines) if code < 0 else Exit(code=code, log=lines)

    def lost(self) -> Exit:
        """Say how a dockerd ended that was not our child: nobody but its log can tell."""
        return Exit(log=files.tail(self.log, REASON_LINES))

    def argv(self, binary: str) -> list[str]:
        """Build the command line; what is the default already is not said again."""
        wanted = self.settings.dockerd
        line = [binary, *wanted.args]
        if wanted.socket not in DEFAULT_SOCKETS:
            line += ["-H", f"unix://{wanted.socket}"]
        if wanted.pidfile not in DEFAULT_PIDFILES:
            line += ["--pidfile", wanted.pidfile]
        return line

    def _start(self) -> None:
        self.trouble = None
        binary = self.binary()
        if binary is None:
            self.trouble = f"{self.settings.dockerd.binary} is not installed"
            return
        self._drop_stale_pidfiles()
        files.rotate(self.log, LARGEST_LOG)
        try:
            output = files.append(self.log, 0o640)
        except OSError as error:
            self.trouble = f"cannot open {self.log}: {error.strerror}"
            return
        try:
            self.child = subprocess.Popen(
                self.argv(binary),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                umask=0o022,
                start_new_session=True,
                env={"PATH": PATH, "HOME": "/root", MARK: self.settings.run_dir},
            )
        except OSError as error:
            self.trouble = f"cannot start {binary}: {error.strerror}"
            return
        finally:
            os.close(output)
        self.started = process.ref(self.child.pid)

    def _drop_stale_pidfiles(self) -> None:
        """Remove pid files that name a dead process, a zombie or a stranger.

        dockerd refuses to start beside the first file, and takes whatever the second names for its
        containerd and then waits for it for ever: with a pid 1 that does not reap, that is what
        every ``kill -9`` leaves behind.
        """
        exec_root = "/var/run/docker"
        for argument in self.settings.dockerd.args:
            if argument.startswith("--exec-root="):
                exec_root = argument.partition("=")[2]
        helper = Path(exec_root, "containerd/containerd.pid")
        for path in (Path(self.settings.dockerd.pidfile), helper):
            pid = _pid_in(path)
            found = None if pid is None else process.ref(pid)
            if found is not None and path == helper:
                process.wait(found, HELPER_END_S)  # it dies with its dockerd, a moment later
                found = process.ref(found.pid)
            if pid is not None and (found is None or process.name(pid) not in _NAMES):
                path.unlink(missing_ok=True)

    def _marked(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{MARK}={self.settings.run_dir}".encode() in environment.split(b"\0")


def _pid_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
