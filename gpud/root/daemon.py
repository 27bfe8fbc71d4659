"""Reset of what a process inherits from its shell and must not hand on to dockerd.

dockerd gives its own limits, signal dispositions and CPUs to every container, so a supervisor begun
below ``ulimit -f 1000``, ``nohup``, ``taskset`` or an editor's terminal would spoil them all. Each
value is put to what a service manager gives. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

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
