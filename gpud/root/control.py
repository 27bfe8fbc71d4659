"""Start, stop and restart the supervisor from a command that returns at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpud.core.errors import AlreadyRunning, GpudError
from gpud.core.text import escaped
from gpud.root import daemon, files, lock, owner, process, supervisor
from gpud.root.dockerd import LARGEST_LOG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.core.report import ProcessRef
    from gpud.core.settings import Settings

STOP_S = 15.0
DOCKERD_STOP_S = 60.0
LARGEST_MESSAGE = 64 * 1024


def up(
    settings: Settings, *, config_path: Path | None, agent_command: Sequence[str] | None = None
) -> int:
    """Start the supervisor in the background; 0 at once when it runs already.

    Returns when it holds its lock and ``root.pid`` is written. Errors: ``GpudError`` with what kept
    it from starting.
    """
    if lock.holder(Path(settings.run_dir)) is not None:
        return 0
    daemon.occupy_standard()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _daemon(settings, config_path, agent_command, writer)
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
        files.replace(Path(settings.run_dir, lock.STOPPED), b"")
    return _stop(settings, docker=docker)


def _stop(settings: Settings, *, docker: bool) -> Stopped:
    run_dir = Path(settings.run_dir)
    daemon = _dockerd(run_dir) if docker else None
    running = lock.holder(run_dir)
    if running is not None and not process.end(running, STOP_S):
        raise GpudError(f"the supervisor (pid {running.pid}) does not end")
    if lock.holder(run_dir) is None:  # nobody has started another meanwhile
        (run_dir / "root.pid").unlink(missing_ok=True)
    if daemon is None or not process.send(daemon, signal.SIGTERM):
        return Stopped(supervisor=running is not None)
    # Containers get their own time to end; a second signal would cut it short.
    if not process.wait(daemon, DOCKERD_STOP_S):
        raise GpudError(
            f"dockerd (pid {daemon.pid}) was asked to stop and still runs",
            fix=f"sudo kill -9 {daemon.pid}; its containers run on",
        )
    return Stopped(supervisor=running is not None, dockerd=True)


def restart(
    settings: Settings, *, config_path: Path | None, agent_command: Sequence[str] | None = None
) -> int:
    """Stop and start; dockerd is adopted."""
    _stop(settings, docker=False)
    return up(settings, config_path=config_path, agent_command=agent_command)


def _dockerd(run_dir: Path) -> ProcessRef | None:
    """Find the dockerd that carries our mark, also one that hides behind another's socket."""
    for pid in process.pids():
        if process.name(pid) == "dockerd" and owner.marked(pid, str(run_dir)):
            return process.ref(pid)
    return None


def _daemon(
    settings: Settings, config_path: Path | None, command: Sequence[str] | None, writer: int
) -> NoReturn:
    """Leave the terminal and its session for good, then supervise. Never returns to the caller."""
    code = 1
    try:
        daemon.detach(keep={writer})
        daemon.reset()
        files.directory(Path(settings.log_dir), 0o755)
        null = os.open(os.devnull, os.O_RDWR)
        errors = Path(settings.log_dir, "root.err")
        files.rotate(errors, LARGEST_LOG)  # here too: a start that always fails gets no further
        crash = files.append(errors)
        for target, source in ((0, null), (1, crash), (2, crash)):
            os.dup2(source, target)
        for spent in (null, crash):
            os.close(spent)
        code = supervisor.run(
            settings,
            config_path=config_path,
            foreground=False,
            agent_command=command,
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
