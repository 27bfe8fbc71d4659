"""Start, stop and restart of the supervisor; one holds the lock of a run directory at a time.

What a process inherits from its shell must not reach dockerd, which gives its own limits, signal
dispositions and CPUs to every container: a supervisor begun below ``ulimit -f 1000``, ``nohup``,
``taskset`` or an editor's terminal would spoil them all. Each value is reset to what a service
manager gives.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpud import logs, regular_file, reports
from gpud.core.errors import AlreadyRunning, GpudError
from gpud.core.text import escaped
from gpud.install.places import SYSTEMD, UNIT, UNIT_ENABLED
from gpud.root import agent as agents
from gpud.root import drop, files, lock, owner, process
from gpud.root.conditions import PATH
from gpud.root.dockerd import LARGEST_LOG
from gpud.root.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpud.core.report import ProcessRef
    from gpud.core.settings import Settings

STOP_S = 15.0
DOCKERD_STOP_S = 60.0
LARGEST_MESSAGE = 64 * 1024
FIRST_DESCRIPTOR = 3
UMASK = 0o022
PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT})
"""Dispositions the interpreter sets for itself; ``subprocess`` gives children the default back."""

_ANY = resource.RLIM_INFINITY
_MIB = 1024 * 1024
LIMITS: dict[int, tuple[int, int]] = {
    resource.RLIMIT_CPU: (_ANY, _ANY),
    resource.RLIMIT_FSIZE: (_ANY, _ANY),
    resource.RLIMIT_DATA: (_ANY, _ANY),
    resource.RLIMIT_AS: (_ANY, _ANY),
    resource.RLIMIT_RSS: (_ANY, _ANY),
    resource.RLIMIT_NPROC: (_ANY, _ANY),
    resource.RLIMIT_CORE: (_ANY, _ANY),
    resource.RLIMIT_STACK: (8 * _MIB, _ANY),
    # systemd's defaults: a low soft limit, because programs that use select(2) break above it; Go
    # programs such as dockerd raise theirs to the hard one.
    resource.RLIMIT_NOFILE: (1024, 524_288),
    resource.RLIMIT_MEMLOCK: (8 * _MIB, 8 * _MIB),
}
"""Soft and hard, in the unit of ``setrlimit(2)``: bytes, seconds of CPU, or a count."""


def run(
    settings: Settings,
    *,
    config_path: Path | None,
    foreground: bool,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Supervise until SIGTERM or SIGINT; dockerd keeps running afterwards.

    Errors: ``AlreadyRunning``; ``ConfigError`` for an unknown user; ``OSError`` when a directory
    cannot be made.
    """
    os.umask(0o022)
    user = agents.choose_user(settings)
    files.directory(Path(settings.run_dir), 0o755)
    held = lock.Lock(Path(settings.run_dir))
    agents.prepare(settings, user)
    log = Path(settings.log_dir, "root.log")
    logs.configure(log, level=settings.log.level, terminal=foreground)
    shown = foreground and agents.may_write(user)
    agent = agents.AgentManager(settings, user, config_path, foreground=shown)
    with contextlib.suppress(OSError):
        drop.prctl(drop.PR_SET_CHILD_SUBREAPER, 1)
    supervisor = Supervisor(settings, agent, held)
    ready()
    return supervisor.loop()


def up(settings: Settings, *, config_path: Path | None) -> int:
    """Start the supervisor in the background, or as systemd's unit; 0 at once when it runs.

    Returns when it holds its lock and ``root.pid`` is written. Errors: ``GpudError`` with what kept
    it from starting.
    """
    if reports.supervisor(Path(settings.run_dir)) is not None:
        return 0
    if settings.home == "/" and SYSTEMD.is_dir() and os.path.lexists(UNIT_ENABLED):
        return _start_unit()
    occupy_standard()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _daemon(settings, config_path, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        message = pipe.read(LARGEST_MESSAGE).decode("utf-8", "replace")
    if message == "ready":
        return 0
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if message:
        raise GpudError(message)
    if code == -signal.SIGTERM:
        words = "it was stopped while it started, by another gpud down or gpud restart"
        raise GpudError(words, fix="gpud status says whether it runs; gpud up starts it")
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    errors = Path(settings.log_dir, "root.err")
    raise GpudError(f"the supervisor ended {how} before it was ready", fix=f"sudo tail {errors}")


def _start_unit() -> int:
    """Let systemd run gpud, and wait until it does. Errors: ``GpudError``."""
    line, environ = ["systemctl", "start", UNIT.name], {"PATH": PATH}  # no program of the caller's
    if subprocess.run(line, stdin=subprocess.DEVNULL, env=environ, check=False).returncode:
        fix = f"sudo journalctl -eu {UNIT.stem} says why"
        raise GpudError(f"systemd could not start {UNIT.name}", fix=fix)
    return 0


@dataclass(frozen=True, slots=True)
class Stopped:
    """Processes that ran and were stopped."""

    supervisor: bool
    dockerd: bool = False


def down(settings: Settings, *, docker: bool) -> Stopped:
    """Stop for good: no opened shell starts gpud before ``up``, ``restart`` or the next boot.

    With ``docker``, the dockerd gpud started ends too. Errors: ``GpudError`` when one of them does
    not end in time.
    """
    with contextlib.suppress(OSError):
        files.directory(Path(settings.run_dir), 0o755)
        regular_file.replace(Path(settings.run_dir, lock.STOPPED), b"")
    return _stop(settings, docker=docker)


def _stop(settings: Settings, *, docker: bool) -> Stopped:
    run_dir = Path(settings.run_dir)
    dockerd = _dockerd(run_dir) if docker else None
    running = reports.supervisor(run_dir)
    if running is not None and not process.end(running, STOP_S):
        raise GpudError(f"the supervisor (pid {running.pid}) does not end")
    if reports.supervisor(run_dir) is None:  # nobody has started another meanwhile
        (run_dir / "root.pid").unlink(missing_ok=True)
    if dockerd is None or not process.send(dockerd, signal.SIGTERM):
        return Stopped(supervisor=running is not None)
    # Containers get their own time to end; a second signal would cut it short.
    if not process.wait(dockerd, DOCKERD_STOP_S):
        raise GpudError(
            f"dockerd (pid {dockerd.pid}) was asked to stop and still runs",
            fix=f"sudo kill -9 {dockerd.pid}; its containers run on",
        )
    return Stopped(supervisor=running is not None, dockerd=True)


def restart(settings: Settings, *, config_path: Path | None) -> int:
    """Stop and start; dockerd is adopted."""
    _stop(settings, docker=False)
    return up(settings, config_path=config_path)


def _dockerd(run_dir: Path) -> ProcessRef | None:
    """Find the dockerd that carries our mark, also one that hides behind another's socket."""
    for pid in process.pids():
        if process.name(pid) == "dockerd" and owner.marked(pid, str(run_dir)):
            return process.ref(pid)
    return None


def _daemon(settings: Settings, config_path: Path | None, writer: int) -> NoReturn:
    """Leave the terminal and its session for good, then supervise. Never returns to the caller."""
    code = 1
    try:
        detach(keep={writer})
        reset()
        files.directory(Path(settings.log_dir), 0o755)
        null = os.open(os.devnull, os.O_RDWR)
        errors = Path(settings.log_dir, "root.err")
        files.rotate(errors, LARGEST_LOG)  # here too: a start that always fails gets no further
        crash = files.append(errors)
        for target, source in ((0, null), (1, crash), (2, crash)):
            os.dup2(source, target)
        for spent in (null, crash):
            os.close(spent)
        code = run(
            settings,
            config_path=config_path,
            foreground=False,
            ready=lambda: _tell(writer, "ready"),
        )
    except AlreadyRunning:
        _tell(writer, "ready")
        code = 0
    except BaseException as error:  # noqa: BLE001  # the end of a process: say it and go
        _tell(writer, str(error) or type(error).__name__)
        sys.stderr.write(escaped("".join(traceback.format_exception(error)), lines=True))
        sys.stderr.flush()
    finally:
        os._exit(code)


def _tell(writer: int, message: str) -> None:
    try:
        os.write(writer, message.encode())
        os.close(writer)
    except OSError:
        return  # the caller is gone, or has been told before


def detach(*, keep: Collection[int]) -> None:
    """Leave session, terminal, directory and descriptors, except ``keep`` and the standard three.

    The process becomes the leader of a session without a terminal. It is not made a child of pid 1:
    whoever is the nearest subreaper adopts it, and in WSL that is the session's relay, which keeps
    the distribution running. Errors: ``OSError`` when it leads a process group already.
    """
    os.setsid()
    os.chdir("/")
    os.umask(UMASK)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor >= FIRST_DESCRIPTOR and descriptor not in keep:
            with contextlib.suppress(OSError):  # the one that listed them has gone already
                os.close(descriptor)


def occupy_standard() -> None:
    """Open 0, 1 and 2 where the caller closed them, so that no other file gets these numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < FIRST_DESCRIPTOR:
        pass
    os.close(descriptor)


def reset() -> None:
    """Put signals, limits, niceness, CPUs and the OOM score to what a service begins with.

    Errors: none. Without root some of them can only be lowered, and what cannot be had is left.
    """
    signals()
    for limit, (soft, hard) in LIMITS.items():
        _limit(limit, soft, hard)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):  # the kernel cuts this down to what the cpuset allows
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with contextlib.suppress(OSError):  # editors raise it for whatever runs in their terminals
        Path("/proc/self/oom_score_adj").write_text("0")


def signals() -> None:
    """Block nothing and ignore nothing: both survive ``exec``, from ``nohup`` to dockerd."""
    for number in signal.valid_signals() - PYTHONS_OWN - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a plain shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limit(limit: int, soft: int, hard: int) -> None:
    """Set both; who may not raise the hard limit (no CAP_SYS_RESOURCE) goes as far as it allows."""
    for ceiling in (hard, resource.getrlimit(limit)[1]):
        most = soft if ceiling == _ANY else ceiling if soft == _ANY else min(soft, ceiling)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, ceiling))
            return
