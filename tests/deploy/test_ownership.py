"""Files of the service's user: what becomes root's at an uninstallation, and whose it is again."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from gpud.install import ownership
from tests.deploy.installing import fresh, install, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.overlay import Machine

MAKES_DIRECTORIES = """
import itertools, os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for name in itertools.count():
    time.sleep(0.005)
    try:
        os.mkdir(f"/var/lib/gpud/d{name}")
        if name == 20: print("many", flush=True)
    except OSError:
        if os.fork(): os._exit(0)
"""
MAIN_THREAD_ENDS = """
import ctypes, threading, time
def stay():
    while "\\nState:\\tZ" not in open("/proc/self/status").read(): time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(3600)
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""
OWN_DEVICES = """
mount -t tmpfs -o mode=755 devices /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/urandom c 1 9
ln -s /proc/self/fd /dev/fd
touch /dev/dxg
mkfifo -m 666 /dev/end
"""
"""A /dev of the machine's own: what is made in the other is made where the tests run."""
IMPATIENT = """
import sys
sys.path.insert(0, sys.argv[1])
from gpud.install import __main__, ownership
ownership.GPU_S = 0.0
__main__.main(sys.argv[1:])
"""
"""What deploy/uninstall runs, which waits half a minute for a driver."""
AS_GPUD = ("setpriv", "--reuid=gpud", "--regid=gpud", "--clear-groups")


@contextlib.contextmanager
def with_state(light: Path) -> Iterator[tuple[Machine, Path]]:
    """Give a machine with gpud's user, noted as installed, and its state directory."""
    with fresh(light) as made:
        made.well("useradd", "--system", "--user-group", "gpud")
        made.well("mkdir", "/etc/gpud")
        (made.root / "etc/gpud/manifest").write_text("dir /etc/gpud\nuser gpud\n")
        made.well("install", "-d", "-o", "gpud", "/var/lib/gpud", "/var/lib/gpud/cuda-cache/a")
        yield made, made.root / "var/lib/gpud"


def file_of(uid: int, path: Path) -> Path:
    path.write_text("figures")
    os.chown(path, uid, uid)
    return path


def test_uninstall_ends_the_processes_of_user_gpud_before_it_takes_their_files(light: Path) -> None:
    with with_state(light) as (made, state):
        python = (*AS_GPUD, "/usr/bin/python3", "-Ic")
        with (
            made.start(*python, MAKES_DIRECTORIES) as racer,
            made.start(*python, MAIN_THREAD_ENDS) as headless,
        ):
            assert racer.stdout is not None
            assert headless.stdout is not None
            assert (racer.stdout.readline(), headless.stdout.readline()) == ("many\n", "ready\n")
            file_of(state.stat().st_uid, state / "gpud.db")
            told = made.run(*uninstall(light))
            assert racer.stdout.read() == "", "it and all that it began are gone"
            assert headless.stdout.read() == ""
        assert told.returncode == 0, told.stdout + told.stderr
        assert made.run("getent", "passwd", "gpud").returncode == 2
        assert [path.name for path in state.iterdir()] == ["gpud.db"]
        assert {path.stat().st_uid for path in (state, state / "gpud.db")} == {0}
        aside = made.root / "var/lib/gpud.aside-1"
        assert (aside / "d20").is_dir()
        assert f"{aside.stat().st_mode & 0o777:o}" == "700"
        assert "moved to /var/lib/gpud.aside-1" in told.stdout
        made.well(*uninstall(light, "--purge"))
        assert not list(state.parent.glob("gpud*"))


def test_uninstall_signals_nothing_while_a_process_of_gpud_hangs_on_the_gpu_of_wsl2(
    light: Path,
) -> None:
    with with_state(light) as (made, state):
        made.well("/bin/sh", "-ec", OWN_DEVICES)
        end = made.root / "dev/end"
        hang = "gpu = open('/dev/dxg'); print('open', flush=True); open('/dev/end').read()"
        python = (*AS_GPUD, "/usr/bin/python3", "-Ic")
        with made.start(*python, hang) as hung:
            assert hung.stdout is not None
            assert hung.stdout.readline() == "open\n"
            checkout = str(light / "checkout")
            told = made.run("/usr/bin/python3", "-IBc", IMPATIENT, checkout, "uninstall")
            assert told.returncode == 1
            assert "hangs in the GPU driver" in told.stderr
            assert "wsl --shutdown" in told.stderr
            assert "nothing was removed" in told.stderr
            assert hung.poll() is None
            end.write_text("the driver answers")
        assert state.stat().st_uid != 0
        made.well(*uninstall(light))
        assert state.stat().st_uid == 0


def test_uninstall_changes_the_owner_of_no_file_behind_a_link(light: Path) -> None:
    with with_state(light) as (made, state):
        uid = state.stat().st_uid
        victim = file_of(1, made.root / "var/lib/victim")
        foreign = made.root / "var/lib/foreign"
        foreign.mkdir()
        file_of(1, foreign / "file")
        victim.chmod(0o4755)  # as that of sudo, which a new owner or group would take away
        (state / "hard").hardlink_to(victim)
        log = made.root / "var/log/gpud/agent"
        log.mkdir(parents=True)
        os.chown(log, uid, uid)
        (log / "hard").hardlink_to(victim)
        (state / "soft").symlink_to("/var/lib/victim")
        (state / "folder").symlink_to("/var/lib/foreign")
        os.mkfifo(state / "fifo")
        (state / "esc\x1b]0;x\x07").mkdir()
        (state / "gpud.db").write_text("figures")
        for path in state.iterdir():
            if path.name != "hard":
                os.chown(path, uid, uid, follow_symlinks=False)
        told = made.well(*uninstall(light))
        facts = victim.stat()
        assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777) == (1, 1, 0o4755)
        assert (foreign / "file").stat().st_uid == 1
        assert [path.name for path in state.iterdir()] == ["gpud.db"]
        assert (state / "gpud.db").stat().st_uid == 0
        aside = {path.name for path in state.with_name("gpud.aside-1").iterdir()}
        assert {"hard", "soft", "folder", "fifo"} <= aside
        assert "\x1b" not in told


def test_install_refuses_a_kept_state_that_uninstall_did_not_leave(light: Path) -> None:
    with with_state(light) as (made, state):
        victim = file_of(0, made.root / "var/lib/victim")
        made.well("rm", "-r", "/var/lib/gpud/cuda-cache")
        os.chown(state, 0, 0)
        file_of(0, state / "gpud.db")
        (state / "innocent").hardlink_to(victim)
        told = made.run(*install(light, "--no-start"))
        assert told.returncode == 1
        assert "/var/lib/gpud is not as deploy/uninstall leaves it: it holds 'innocent'" in (
            told.stderr
        )
        assert (victim.stat().st_uid, (state / "gpud.db").stat().st_uid) == (0, 0)
        (state / "innocent").unlink()
        (state / "d1").mkdir()
        told = made.run(*install(light, "--no-start"))
        assert (told.returncode, (state / "d1").stat().st_uid) == (1, 0)


def test_an_error_names_the_file_that_it_is_about(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError, match=str(file)):
        ownership.keep("nobody", str(file))


def test_log_of_the_agent_is_the_agents_again_after_another_installation(light: Path) -> None:
    with with_state(light) as (made, state):
        log, uid = made.root / "var/log/gpud/agent", state.stat().st_uid
        log.mkdir(parents=True)
        os.chown(log, uid, uid)
        file_of(uid, log / "agent.log")
        made.well(*uninstall(light))
        assert {path.stat().st_uid for path in (log, log / "agent.log")} == {0}
        (light / "empty").mkdir(exist_ok=True)
        told = made.run(*install(light, "--no-start", "--wheelhouse", str(light / "empty")))
        assert "not as deploy/uninstall leaves it" not in told.stderr
        assert made.well("stat", "-c", "%U %G", "/var/log/gpud/agent/agent.log") == "gpud gpud\n"
        made.well(*AS_GPUD, "sh", "-c", "echo >>/var/log/gpud/agent/agent.log")
