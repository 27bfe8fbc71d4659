"""Dockerds of others beside gpud: another distribution's, Docker Desktop's, systemd's, none."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import socketserver
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.root.test_dockerd_real import dockerd_starts, running
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd
    from tests.root.conftest import Supervised


class Desktop(http.server.BaseHTTPRequestHandler):
    """What Docker Desktop's proxy looks like from here: a socket that answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"ServerVersion": "27.0", "LiveRestoreEnabled": false}')

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Be quiet."""


@contextlib.contextmanager
def docker_desktop(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Desktop) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield
        finally:
            server.shutdown()
            serving.join()


def quick(dockerd: PrivateDockerd, **more: Any) -> dict[str, Any]:
    return dockerd.settings(**{"ping_interval_s": 0.1, "ping_timeout_s": 0.5, **more})


def beside(wsl: Path, dockerd: PrivateDockerd, *args: str, **more: Any) -> dict[str, Any]:
    return {"sysroot": str(wsl), "dockerd": quick(dockerd, args=(*dockerd.args, *args), **more)}


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


def owned_by(owner: str) -> Any:
    return lambda r: r["dockerd"]["owner"] == owner and r["dockerd"]["up"]


def test_docker_desktop_takes_over_while_we_run_and_we_begin_again_when_it_is_gone(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    sysroot = dockerd.root / "sysroot"
    (sysroot / "etc").mkdir(parents=True)
    (sysroot / "etc/wsl.conf").write_text(f"[automount]\nroot = {sysroot}/mnt\n")
    theirs = sysroot / "mnt/wsl/docker-desktop/docker.proxy.sock"
    supervised.settings = {
        "sysroot": str(sysroot),
        "dockerd": quick(dockerd, start_timeout_s=3.0),
    }
    supervised.start()
    ours = supervised.when(running, "our dockerd")["dockerd"]["process"]["pid"]
    with docker_desktop(theirs):
        Path(dockerd.socket).unlink()
        Path(dockerd.socket).symlink_to(theirs)
        status = supervised.when(owned_by("docker_desktop"), "the hand-over")["dockerd"]
        assert status["reason"] == "handed_over"
        assert f"pid {ours}" in status["detail"]
        os.kill(ours, signal.SIGKILL)  # told to end, it would take Desktop's link along
        status = supervised.when(lambda r: not r["dockerd"]["reason"], "the hand-over's end")
        assert status["dockerd"]["restarts"] == {}
        assert dockerd_starts(supervised) == 1
    status = supervised.when(lambda r: not r["dockerd"]["up"], "Desktop's end")["dockerd"]
    assert status["reason"] == "left_to_docker_desktop"
    assert dockerd.dockerds() == []
    Path(dockerd.socket).unlink()
    status = supervised.when(owned_by("gpud"), "ours again")["dockerd"]
    assert status["restarts"] == {"taken_over": 1}


def test_systemd_keeps_its_enabled_docker_until_the_unit_is_disabled(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    sysroot = dockerd.root / "sysroot"
    unit = sysroot / "etc/systemd/system/multi-user.target.wants/docker.service"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/lib/systemd/system/docker.service")
    (sysroot / "run/systemd/system").mkdir(parents=True)
    args = (*dockerd.args, "--pidfile", dockerd.pidfile)
    usual = {"policy": "auto", "args": args, "ping_interval_s": 0.1}
    supervised.settings = {"sysroot": str(sysroot), "dockerd": usual}
    # The usual socket, in a /run of its own.
    supervised.prefix = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run; exec "$@"', "sh"]
    supervised.start()
    status = supervised.when(lambda r: r["dockerd"]["owner"] == "systemd", "its owner")["dockerd"]
    assert (status["state"], status["reason"]) == ("absent", "left_to_systemd")
    assert dockerd.dockerds() == []
    unit.unlink()
    assert supervised.when(running, "ours")["dockerd"]["restarts"] == {"taken_over": 1}


def test_dockerd_with_a_dead_containerd_is_replaced_and_its_container_lives(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = {"dockerd": quick(dockerd, hung_after_s=1.0)}
    supervised.start()
    first = supervised.when(running, "our dockerd")["dockerd"]["process"]
    container = dockerd.run_container()
    inside = dockerd.pid_of(container)
    helper = int((dockerd.root / "exec/containerd/containerd.pid").read_text())
    os.kill(helper, signal.SIGKILL)
    status = supervised.when(lambda r: r["dockerd"]["reason"] == "containerd_gone", "its death")
    assert status["dockerd"]["up"] is True
    status = supervised.when(
        lambda r: running(r) and r["dockerd"]["process"] != first, "another dockerd"
    )
    assert status["dockerd"]["restarts"] == {"containerd_gone": 1}
    assert dockerd.pid_of(container) == inside


def test_dockerd_that_lost_its_socket_file_is_reported_and_not_killed(
    supervised: Supervised, dockerd: PrivateDockerd
) -> None:
    supervised.settings = {"dockerd": quick(dockerd, hung_after_s=0.5)}
    supervised.start()
    first = supervised.when(running, "our dockerd")["dockerd"]["process"]
    Path(dockerd.socket).unlink()
    earlier = supervised.when(lambda r: r["dockerd"]["reason"] == "socket_gone", "it")
    assert str(first["pid"]) in earlier["dockerd"]["fix"]
    later = supervised.when(lambda r: r["beat_s"] > earlier["beat_s"] + 2, "more looks")
    assert later["dockerd"]["process"] == first
    os.kill(first["pid"], signal.SIGTERM)
    supervised.when(running, "ours again")
    until(dockerd.answers, "the API")


def many_looks(supervised: Supervised) -> dict[str, Any]:
    earlier = supervised.report()
    assert earlier is not None
    return supervised.when(lambda r: r["beat_s"] > earlier["beat_s"] + 1, "many more looks")


def test_unexplained_failures_are_a_crash_loop_with_the_lines_that_explain_it(
    supervised: Supervised, dockerd: PrivateDockerd, wsl: Path
) -> None:
    failing = "--default-runtime=of-my-own"
    supervised.settings = beside(wsl, dockerd, failing, policy="manage", backoff_max_s=0.5)
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
    supervised.settings = beside(wsl, dockerd)
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
    supervised.settings = beside(wsl, dockerd)
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
