"""A real dockerd that cannot start, on a WSL-looking machine where another distribution has one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.root.test_dockerd_real import dockerd_starts, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd
    from tests.root.conftest import Supervised


@contextlib.contextmanager
def unseen_listener(path: str, uid: int = 0) -> Iterator[None]:
    """A listening socket of that name that no process holds and no connect() reaches.

    It is on its way in another socket's queue, and its file is gone, as if in mounts of its own.
    """
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    os.fchown(listening.fileno(), uid, -1)
    Path(path).unlink()
    queue = socket.socketpair()
    socket.send_fds(queue[0], [b"x"], [listening.fileno()])
    listening.close()
    try:
        yield
    finally:
        for end in queue:
            end.close()


@pytest.fixture
def wsl(dockerd: PrivateDockerd) -> Path:
    """A sysroot whose kernel calls itself WSL's; the table of sockets is the real one."""
    sysroot = dockerd.root / "sysroot"
    (sysroot / "proc/sys/kernel").mkdir(parents=True)
    (sysroot / "proc/sys/kernel/osrelease").write_text("6.6.87.2-microsoft-standard-WSL2\n")
    (sysroot / "proc/net").mkdir()
    (sysroot / "proc/net/unix").symlink_to("/proc/net/unix")
    return sysroot


def quick(wsl: Path, dockerd: PrivateDockerd, *args: str, **more: Any) -> dict[str, Any]:
    settings = dockerd.settings(ping_interval_s=0.1, args=(*dockerd.args, *args), **more)
    return {"sysroot": str(wsl), "dockerd": settings}


def many_looks(supervised: Supervised) -> dict[str, Any]:
    earlier = supervised.report()
    assert earlier is not None
    return supervised.when(lambda r: r["beat_s"] > earlier["beat_s"] + 1, "many more looks")


def test_unexplained_failures_are_a_crash_loop_with_the_lines_that_explain_it(
    supervised: Supervised, dockerd: PrivateDockerd, wsl: Path
) -> None:
    failing = "--default-runtime=of-my-own"
    supervised.settings = quick(wsl, dockerd, failing, policy="manage", backoff_max_s=0.5)
    with unseen_listener(dockerd.socket):
        supervised.start()
        status = supervised.when(lambda r: r["dockerd"]["state"] == "crashloop", "a crash loop")
        assert status["dockerd"]["owner"] == "other_distribution"
        assert status["dockerd"]["reason"] == "crashloop"
        assert "5 times in a row" in status["dockerd"]["detail"]
        assert "of-my-own" in status["dockerd"]["detail"]
        assert "dockerd.log" in status["dockerd"]["fix"]
        assert dockerd_starts(supervised) <= 6


def test_auto_leaves_dockerd_to_another_distribution_and_does_not_advise_two_of_them(
    supervised: Supervised, dockerd: PrivateDockerd, wsl: Path
) -> None:
    supervised.settings = quick(wsl, dockerd)
    with unseen_listener(dockerd.socket):
        supervised.start()
        status = many_looks(supervised)["dockerd"]
        assert (status["state"], status["reason"]) == ("absent", "left_to_other_distribution")
        assert "manage" not in status["fix"]
        assert status["suspect_sockets"] == 0
        assert dockerd.pids() == []
    assert supervised.when(running, "ours")["dockerd"]["restarts"] == {"taken_over": 1}


def test_a_listener_that_is_not_roots_keeps_no_dockerd_down_and_is_counted(
    supervised: Supervised, dockerd: PrivateDockerd, wsl: Path
) -> None:
    supervised.settings = quick(wsl, dockerd)
    with unseen_listener(dockerd.socket, uid=65534):
        supervised.start()
        status = supervised.when(running, "ours")["dockerd"]
        assert status["suspect_sockets"] == 1
        os.kill(status["process"]["pid"], signal.SIGKILL)
        again = supervised.when(
            lambda r: running(r) and r["dockerd"]["process"] != status["process"], "its restart"
        )
        assert again["dockerd"]["restarts"] == {"killed": 1}
        assert again["dockerd"]["suspect_sockets"] == 1
    log = (supervised.home / "var/log/gpud/root.log").read_text()
    assert log.count("suspect_socket") == 1
