"""dockerd as a process and a socket: find it, observe it, start it, signal it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gpud.core.report import Owner, ProcessRef
from gpud.root import conditions, daemonconfig, files, process
from gpud.root import dockerd_rules as rules
from gpud.root.dockerd_facts import (
    LISTENER_PRESENT,
    Action,
    Api,
    Containerd,
    DockerdObservation,
    Exit,
    Memory,
)
from gpud.root.owner import MARK, Scene, marked, owner, suspects

if TYPE_CHECKING:
    from gpud.core.settings import Settings
    from gpud.root.daemonconfig import DaemonConfig
    from gpud.root.dockerd_facts import Activity, DockerdCause

log = structlog.get_logger()

PATH = conditions.PATH
SYSTEM_CONTAINERD = "/run/containerd/containerd.sock"
REASON_LINES = 50
HELPER_END_S = 3.0
"""A killed one is gone within milliseconds, and later where much else wants a processor."""
LARGEST_LOG = 10 * 1024 * 1024
ACTIVITY_EVERY_S = 1.0
"""While a dockerd starts or ends it is looked at more often than is worth a look at /proc."""


@dataclass(slots=True)
class Dockerd:
    """The one dockerd that belongs to ``settings.dockerd.socket``."""

    settings: Settings
    config: DaemonConfig = field(init=False)
    child: subprocess.Popen[bytes] | None = None
    started: ProcessRef | None = None
    trouble: str | None = None  # why the last start did not even begin
    unreachable: ProcessRef | None = None  # ours, alive, while another answers on the socket
    suspect_sockets: int = 0  # by dockerd's name and not root's, since this supervisor began
    _suspects: frozenset[str] = frozenset()  # at the last look, by inode
    _with_containerd: ProcessRef | None = None  # the dockerd whose own containerd we have seen
    _log_from: int = 0  # bytes of the log that were there before the last start

    def __post_init__(self) -> None:
        """Read once what dockerd will be told, so that there is a socket to ask."""
        self.config = daemonconfig.read(self.settings.dockerd)

    @property
    def log(self) -> Path:
        """Where dockerd's own output goes."""
        return Path(self.settings.log_dir, "dockerd.log")

    def binary(self) -> str | None:
        """Give the absolute path of dockerd, None when there is none."""
        return shutil.which(self.settings.dockerd.binary, path=PATH)

    def find(self, listener: int | None) -> ProcessRef | None:
        """Give the dockerd in charge: who listens, else our child, else who the pid file names.

        A listener that is no dockerd (systemd's socket unit, Docker Desktop's proxy) hides ours.
        """
        ours = self._ours()
        if listener is not None and (ours is None or listener != ours.pid):
            self.unreachable = ours
            named = listener != 0 and process.name(listener) == "dockerd"
            return process.ref(listener) if named else None
        self.unreachable = None
        if ours is not None:
            return ours
        pid = _pid_in(Path(self.config.pidfile))
        named = pid is not None and _daemon(pid) == "dockerd"
        return process.ref(pid) if pid is not None and named else None

    def look(
        self,
        api: Api,
        listener: int | None,
        process_ref: ProcessRef | None,
        memory: Memory,
        exit_: Exit | None,
    ) -> DockerdObservation:
        """Put one look together: what the socket did, who listens on it, what ``find`` gave."""
        if process_ref is None:
            self.config = daemonconfig.read(self.settings.dockerd)
        scene = Scene(
            socket=self.config.socket,
            run_dir=self.settings.run_dir,
            sysroot=Path(self.settings.sysroot),
            process=process_ref,
            listener=listener,
            listens=api in LISTENER_PRESENT,
        )
        if process_ref is None:
            self._count(suspects(scene))
        owner_now = (
            Owner.GPUD if process_ref is not None and process_ref == self.started else owner(scene)
        )
        if exit_ is not None:
            exit_ = self._with_cause(exit_)
        cause = exit_.cause if exit_ is not None else memory.hold.cause if memory.hold else None
        return DockerdObservation(
            process=process_ref,
            owner=owner_now,
            api=api,
            obstacle=self._obstacle(api, listener, owner_now) if process_ref is None else None,
            exit=exit_,
            conditions={}
            if process_ref is not None
            else conditions.look(self.config, self.binary(), cause, everything=memory.hold is None),
            containerd=self._containerd(process_ref) if owner_now is Owner.GPUD else None,
            activity=self._activity(process_ref, api, memory),
        )

    def act(self, action: Action, target: ProcessRef | None) -> None:
        """Do what was decided. Errors: none; a start that fails is told by ``trouble``."""
        if action is Action.START:
            self._start()
        elif action is Action.TERMINATE and target is not None:
            process.send(target, signal.SIGTERM)
            process.send(target, signal.SIGCONT)  # a stopped one acts on it only then
        elif action is Action.KILL and target is not None:
            process.send(target, signal.SIGKILL)

    def ended(self, status: int) -> Exit:
        """Turn the wait status of our child into how it ended, with its last words."""
        code = os.waitstatus_to_exitcode(status)
        if self.child is not None:
            self.child.returncode = code
        self.child = self.started = None
        lines = self._last_words()
        return Exit(signal=-code, log=lines) if code < 0 else Exit(code=code, log=lines)

    def lost(self) -> Exit:
        """Say how a dockerd ended that was not our child: nobody but its log can tell."""
        return Exit(log=self._last_words())

    def argv(self, binary: str) -> list[str]:
        """Build the command line; what the default or a file says is not said again."""
        settings = self.settings.dockerd
        line = [binary, *settings.args]
        if self.config.pass_host:
            line += ["-H", f"unix://{settings.socket}"]
        if self.config.pass_pidfile:
            line += ["--pidfile", settings.pidfile]
        return line

    def _ours(self) -> ProcessRef | None:
        """Give the living dockerd that gpud started: our child, or a former supervisor's."""
        if self.started is not None and process.alive(self.started):
            return self.started
        pid = _pid_in(Path(self.config.pidfile))
        if pid is None or process.name(pid) != "dockerd":
            return None
        return process.ref(pid) if marked(pid, self.settings.run_dir) else None

    def _count(self, suspected: frozenset[str]) -> None:
        new = len(suspected - self._suspects)
        self._suspects = suspected
        if new:
            self.suspect_sockets += new
            log.warning("suspect_socket", path=self.config.socket, new=new)

    def _obstacle(self, api: Api, listener: int | None, owner_now: Owner) -> DockerdCause | None:
        if api is Api.SILENT and owner_now is Owner.OTHER:
            return rules.socket_taken(self.config.socket, process.described(listener))
        if self.binary() is None:
            return rules.binary_missing(self.settings.dockerd.binary)
        if self.config.elsewhere:
            return rules.socket_elsewhere(self.config.socket, self.config.hosts or ())
        if self.config.containerd is not None and _listener(self.config.containerd) is None:
            return rules.containerd_unreachable(self.config.containerd)
        return None

    def _with_cause(self, exit_: Exit) -> Exit:
        cause = rules.explain(exit_.log)
        if cause is None and not exit_.log and conditions.full(self.config.data_root):
            cause = rules.disk_full(self.config.data_root)  # no room for its words either
        if cause is not None and cause.slug == "port_taken":
            inodes = process.tcp_listeners(cause.subject)
            pid = process.socket_holder(inodes[0]) if inodes else None
            holder = process.described(pid) if inodes else "nobody any more"
            cause = replace(cause, detail=f"{cause.detail} (by {holder})")
        return replace(exit_, cause=cause)

    def _containerd(self, dockerd: ProcessRef | None) -> Containerd | None:
        """Look for the containerd under our dockerd; only one we have seen can be missed."""
        if dockerd is None:
            return None
        pid = _pid_in(Path(self.config.exec_root, "containerd/containerd.pid"))
        if pid is not None and process.ref(pid) is not None and process.parent(pid) == dockerd.pid:
            self._with_containerd = dockerd
            return Containerd.LISTENS
        if self._with_containerd == dockerd:
            return Containerd.OWN_IS_GONE
        address = self.config.containerd or SYSTEM_CONTAINERD
        if self.config.containerd is None and not Path(address).exists():
            return None
        return Containerd.OTHER_IS_GONE if _listener(address) is None else Containerd.LISTENS

    def _activity(self, dockerd: ProcessRef | None, api: Api, memory: Memory) -> Activity | None:
        """Look closer at a dockerd that was asked and has not answered."""
        due = api is Api.SILENT
        if api not in LISTENER_PRESENT and (memory.terminated_s is not None or not memory.answered):
            due = time.monotonic() - memory.activity_s >= ACTIVITY_EVERY_S
        if dockerd is None or not due:
            return None
        own = self._with_containerd == dockerd  # a child of it, and so looked at in any case
        other = None if own else _listener(self.config.containerd or SYSTEM_CONTAINERD)
        return process.activity(dockerd.pid, [other] if other else [])

    def _start(self) -> None:
        self.trouble = None
        binary = self.binary() or self.settings.dockerd.binary
        try:
            self._drop_stale_pidfiles()
            self.log.parent.mkdir(parents=True, exist_ok=True)
            output = files.append(self.log, 0o640)
        except OSError as error:
            self.trouble = f"cannot prepare {error.filename or self.log}: {error.strerror}"
            return
        try:
            self._log_from = os.fstat(output).st_size
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
        helper = Path(self.config.exec_root, "containerd/containerd.pid")
        for path in (Path(self.config.pidfile), helper):
            pid = _pid_in(path)
            running = None if pid is None else process.ref(pid)
            if running is not None and path == helper:
                process.wait(running, HELPER_END_S)  # it dies with its dockerd, a moment later
                running = process.ref(running.pid)
            if pid is not None and (running is None or _daemon(pid) not in conditions.DAEMONS):
                path.unlink(missing_ok=True)

    def _last_words(self) -> tuple[str, ...]:
        return files.tail(self.log, REASON_LINES, after=self._log_from)


def _daemon(pid: int) -> str:
    """Give the name of a program of root's or our own; a stranger may call theirs as they like."""
    return process.name(pid) if process.uid(pid) in {0, os.geteuid()} else ""


def _listener(path: str) -> int | None:
    """Give the pid of who listens, 0 when it cannot be told; None when nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        try:
            asking.connect(path.removeprefix("unix://"))
        except (BlockingIOError, PermissionError):
            return 0  # its backlog is full, or it is not for us
        except OSError:
            return None
        return process.peer(asking)


def _pid_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
