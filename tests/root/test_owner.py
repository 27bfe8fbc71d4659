"""Whose dockerd it is, asked of real processes, links, namespaces and uids.

The parts of a machine that cannot be had here (systemd's directories, wsl.conf, the kernel's name)
are files below ``sysroot``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpud.core.report import Owner, ProcessRef
from gpud.core.settings import Settings
from gpud.root import control, process
from gpud.root.owner import MARK, MOST_LISTENERS, Scene, owner, suspects
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ENABLED = "etc/systemd/system/multi-user.target.wants/docker.service"
OUTSIDE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
LISTEN = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("listening", flush=True)
sys.stdin.read()
"""
HIDE = """
import os, socket, sys
queues = []
for _ in range(40):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(sys.argv[1])
    listening.listen()
    os.unlink(sys.argv[1])
    queues.append(socket.socketpair())
    socket.send_fds(queues[-1][0], [b"x"], [listening.fileno()])
    listening.close()
print(os.getuid(), flush=True)
sys.stdin.read()
"""
ASK = """
import sys
from pathlib import Path
from gpud.root.ask import Ask
from gpud.root.owner import Scene, owner
path, sysroot = sys.argv[1:]
ask = Ask(path, "/_ping")
print(owner(Scene(path, "/run/gpud", Path(sysroot), None, ask.peer_pid, listens=ask.api is None)))
"""


@pytest.fixture
def nothing(tmp_path: Path) -> Scene:
    """No dockerd and nobody who listens, on a machine of which nothing is known."""
    return Scene(str(tmp_path / "docker.sock"), "/run/gpud", tmp_path, None, None, listens=False)


@contextlib.contextmanager
def sleeping(
    program: str | Path = "/bin/sleep", user: int | None = None, run_dir: str = ""
) -> Iterator[ProcessRef]:
    with subprocess.Popen([program, "100"], user=user, env={MARK: run_dir}) as child:
        result = process.ref(child.pid)
        assert result is not None
        yield result
        child.kill()


@contextlib.contextmanager
def saying(*line: str | Path, **more: Any) -> Iterator[tuple[int, bytes]]:
    """A process that says one line and waits; gives its pid and the line."""
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, **more) as there:
        assert there.stdout is not None
        yield there.pid, there.stdout.readline()
        there.kill()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_wsl(sysroot: Path) -> None:
    write(sysroot / "proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    (sysroot / "proc/net").mkdir(parents=True)
    (sysroot / "proc/net/unix").symlink_to("/proc/net/unix")


def test_a_mark_in_the_environment_is_ours_and_another_supervisors_is_not(nothing: Scene) -> None:
    with sleeping(run_dir="/run/gpud") as ours, sleeping(run_dir="/elsewhere") as theirs:
        until(lambda: owner(replace(nothing, process=ours)) is Owner.GPUD, "the exec")
        assert owner(replace(nothing, process=theirs)) is Owner.OTHER


def runs(program: Path) -> bool:
    """Whether there is a process of this program."""
    for pid in process.pids():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if process.name(pid) == program.name and words[0] == os.fsencode(program):
                return True
    return False


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o4755])
def test_down_with_docker_ends_the_dockerd_of_root_and_no_other_users_program(
    mode: int,
) -> None:
    with contextlib.ExitStack() as ending:
        home = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        home.chmod(0o755)
        settings = msgspec.convert({"home": str(home)}, Settings)
        programs = [home / name / "dockerd" for name in ("theirs", "a container's", "ours")]
        for program in programs:
            program.parent.mkdir()
            shutil.copy("/bin/sleep", program)
        programs[0].chmod(mode)
        started = []
        inside = ["unshare", "--pid", "--fork", "--kill-child", "--"]
        for program, uid, before in zip(programs, (65534, 0, 0), ([], inside, []), strict=True):
            mark = {MARK: settings.run_dir, "PATH": os.environ["PATH"]}
            started.append(subprocess.Popen([*before, program, "100"], user=uid, env=mark))
            ending.callback(started[-1].wait)
            ending.callback(started[-1].kill)
            until(partial(runs, program), "the program")
        stopped = control.down(settings, docker=True)
        assert stopped == control.Stopped(supervisor=False, dockerd=True)
        assert [child.poll() for child in started] == [None, None, -signal.SIGTERM]


@pytest.mark.parametrize(
    ("line", "expected_owner"),
    [
        ("0::/system.slice/docker.service", Owner.SYSTEMD),
        ("1:name=systemd:/system.slice/docker.service", Owner.SYSTEMD),
        ("0::/system.slice/snap.docker.dockerd.service", Owner.SYSTEMD),
        ("0::/user.slice/user-1000.slice/session-1.scope", Owner.OTHER),
        ("12:cpu:/docker/0123456789", Owner.OTHER),
    ],
)
def test_a_process_in_the_cgroup_of_a_system_service_is_systemds(
    nothing: Scene, line: str, expected_owner: Owner
) -> None:
    (nothing.sysroot / "run/systemd/system").mkdir(parents=True)
    with sleeping() as result:
        write(nothing.sysroot / f"proc/{result.pid}/cgroup", f"{line}\n")
        assert (
            owner(replace(nothing, process=result, listener=result.pid, listens=True))
            is expected_owner
        )


def test_a_socket_of_pid_1_is_systemds_only_where_systemd_runs(nothing: Scene) -> None:
    served = replace(nothing, listener=1, listens=True)
    assert owner(served) is Owner.OTHER
    (nothing.sysroot / "run/systemd/system").mkdir(parents=True)
    assert owner(served) is Owner.SYSTEMD


def test_an_enabled_unit_means_that_systemd_will_start_it_if_it_runs(nothing: Scene) -> None:
    usual = replace(nothing, socket="/run/docker.sock")
    unit = nothing.sysroot / ENABLED
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/lib/systemd/system/docker.service")  # dangling: an absolute link
    assert owner(usual) is Owner.NONE
    (nothing.sysroot / "run/systemd/system").mkdir(parents=True)
    assert owner(usual) is Owner.SYSTEMD
    assert owner(nothing) is Owner.NONE  # another socket is no business of the unit's


def test_listener_from_docker_desktop_is_its_proxy_and_a_link_that_leads_nowhere_its_socket(
    nothing: Scene,
) -> None:
    write(nothing.sysroot / "etc/wsl.conf", f"[automount]\nroot={nothing.sysroot}/mnt\n")
    theirs = nothing.sysroot / "mnt/wsl/docker-desktop"
    proxy = theirs / "docker-desktop-user-distro"
    proxy.parent.mkdir(parents=True)
    shutil.copy("/bin/sleep", proxy)
    with sleeping(proxy) as running:
        served = replace(nothing, listener=running.pid, listens=True)
        until(lambda: owner(served) is Owner.DOCKER_DESKTOP, "the exec")
    assert owner(nothing) is Owner.NONE
    Path(nothing.socket).symlink_to(theirs / "shared-sockets/docker.proxy.sock")
    assert owner(nothing) is Owner.DOCKER_DESKTOP


@needs_root
def test_another_users_process_is_another_users(nothing: Scene) -> None:
    with sleeping(user=65534) as rootless:
        assert owner(replace(nothing, process=rootless)) is Owner.OTHER_USER


@pytest.fixture
def other_distribution(nothing: Scene) -> Iterator[Scene]:
    """A listener with mounts and pids of its own, as a second WSL distribution has them."""
    make_wsl(nothing.sysroot)
    place = Path(nothing.socket).parent / "run"
    place.mkdir()
    path = str(place / "docker.sock")
    mounts = f'mount -t tmpfs tmpfs {place}; exec "$@"'
    line = [*OUTSIDE, "--kill-child", "sh", "-c", mounts, "sh", sys.executable, "-c", LISTEN, path]
    with saying(*line) as (_, said):
        assert said == b"listening\n"
        yield replace(nothing, socket=path)


def ask_from_outside(scene: Scene) -> str:
    """Ask from a PID namespace that does not see the other child's processes."""
    return subprocess.run(
        [*OUTSIDE, sys.executable, "-c", ASK, scene.socket, str(scene.sysroot)],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    ).stdout.strip()


@needs_root
def test_a_dockerd_that_listens_by_our_name_in_other_mounts_is_another_distributions(
    other_distribution: Scene,
) -> None:
    assert ask_from_outside(other_distribution) == "other_distribution"
    write(other_distribution.sysroot / "proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
    assert ask_from_outside(other_distribution) == "none"  # a container's, without WSL


@pytest.fixture
def hidden(nothing: Scene) -> Iterator[Scene]:
    """A user's listeners by our name, in user and mount namespaces of their own, held by nobody."""
    make_wsl(nothing.sysroot)
    path = f"/run/gpud-{os.getpid()}.sock"
    mounts = 'mount -t tmpfs tmpfs /run && exec "$@"'
    line = ["unshare", "-Urm", "sh", "-c", mounts, "sh", "/usr/bin/python3", "-c", HIDE, path]
    with saying(*line, user=65534, group=65534, extra_groups=(), cwd="/") as (_, uid):
        if uid != b"0\n":  # root there, and nobody here
            pytest.skip(f"no user namespaces for users: {uid!r}")
        yield replace(nothing, socket=path)


@needs_root
def test_a_listener_that_root_did_not_make_is_suspect_and_no_other_distribution(
    hidden: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, search = [], process.socket_holder

    def holder(inode: str) -> int | None:
        searches.append(inode)
        return search(inode)

    monkeypatch.setattr(process, "socket_holder", holder)
    assert owner(hidden) is Owner.NONE
    assert len(suspects(hidden)) == len(searches) == MOST_LISTENERS, "each search takes 10 ms"


@needs_root
def test_listener_of_an_unknown_maker_is_another_distributions(
    hidden: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "socket_makers", lambda: None)
    assert owner(hidden) is Owner.OTHER_DISTRIBUTION
    assert suspects(hidden) == frozenset()


@needs_root
def test_shared_socket_with_a_listener_out_of_sight_is_another_distributions(
    nothing: Scene,
) -> None:
    make_wsl(nothing.sysroot)
    with saying(sys.executable, "-c", LISTEN, nothing.socket) as (pid, said):
        assert said == b"listening\n"
        assert ask_from_outside(nothing) == "other_distribution"
        assert owner(replace(nothing, listener=pid, listens=True)) is Owner.OTHER
