"""What is left of the shell that started gpud: nothing, and what keeps a WSL distribution alive."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.shell.world import USER
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.shell.world import World

CAP_SYS_RESOURCE = 1 << 24
GPUD = "/opt/gpud/bin/gpud"
RELAY = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER, as the relay of a WSL session
print("relay", os.getpid(), flush=True)
if os.fork() == 0:
    os.environ["PS1"] = "@ready> "
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""
ODD = """
import os, resource, signal, sys
for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGCHLD", "SIGPIPE"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM})
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000_000, 20_000_000))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
resource.setrlimit(resource.RLIMIT_CPU, (50, 60))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.nice(7)
os.umask(0o777)
open("/proc/self/oom_score_adj", "w").write("300")
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.dup2(os.open("/etc/hostname", os.O_RDONLY), 33)
os.close(0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
SPEAKS = """#!/bin/sh
cat /proc/self/status /proc/self/limits >/run/seen.new
mv /run/seen.new /run/seen
exec sleep 1000
"""


@pytest.fixture
def gpud(machine: World) -> Iterator[World]:
    yield machine
    done = machine.run(GPUD, "down", user=None)
    assert done.returncode == 0, done.stderr
    machine.root("rm -f /etc/sudoers.d/00-test")


def supervisor(world: World) -> int:
    pid, start = map(int, world.path("/run/gpud/root.pid").read_text().split())
    assert world.started(pid) == start
    return pid


def stat(world: World, pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, terminal."""
    return world.path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def colon(text: str) -> dict[str, str]:
    """``Name: value`` lines."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in pairs}


def limits(text: str) -> dict[str, list[str]]:
    """``Max NAME soft hard`` lines."""
    found = {}
    for line in text.splitlines():
        if line.startswith("Max "):
            found[line[:26].strip()] = line[26:].split()[:2]
    return found


def files(world: World, pid: int) -> dict[int, str]:
    """Every open descriptor and what it is open on."""
    entries = world.path(f"/proc/{pid}/fd").iterdir()
    return {int(entry.name): leads_to(world, entry) for entry in entries}


def leads_to(world: World, entry: Path) -> str:
    """Where a link of the kernel's leads, told as in there: out here its root may have a path."""
    root = world.path("/proc/1/root").readlink()
    target = str(entry.readlink())
    return f"/{target[len(str(root)) :].lstrip('/')}" if _below(target, str(root)) else target


def _below(target: str, root: str) -> bool:
    return root != "/" and (target == root or target.startswith(f"{root}/"))


@pytest.mark.parametrize(("setting", "how"), [("use_pty", "by the hook"), ("!use_pty", "typed")])
def test_the_terminal_may_close_and_the_relay_keeps_the_distribution(
    gpud: World, setting: str, how: str
) -> None:
    gpud.write("/etc/sudoers.d/00-test", f"Defaults {setting}, requiretty\n", 0o440)
    shown = gpud.window("/usr/bin/python3", "-c", RELAY)
    relay = int(shown.until("@ready> ").split()[1])
    line = f"sudo -n {GPUD} up" if how == "typed" else "/opt/gpud/bin/gpud-start"
    shown.send(f"{line}; echo status $?\n")
    assert "status 0" in shown.until("@ready> ")
    pid = until(lambda: supervisor(gpud), "a supervisor")

    until(
        lambda: not [line for line in gpud.processes().values() if line.startswith("sudo")],
        "the end of every sudo",
    )
    _, parent, group, session, tty = stat(gpud, pid)[:5]
    assert (int(parent), int(group), int(session), int(tty)) == (relay, pid, pid, 0)
    assert leads_to(gpud, gpud.path(f"/proc/{pid}/cwd")) == "/"
    assert colon(gpud.path(f"/proc/{pid}/status").read_text())["Umask"] == "0022"
    opened = files(gpud, pid)
    assert opened[0] == "/dev/null"
    assert opened[1] == opened[2] == "/var/log/gpud/root.err"
    assert not [name for name in opened.values() if "pts" in name or "tty" in name]

    os.close(shown.master)  # the window is closed
    until(lambda: not [c for c in gpud.processes().values() if c.startswith("bash")], "no shell")
    assert supervisor(gpud) == pid
    assert stat(gpud, pid)[1] == str(relay)
    assert gpud.run(GPUD, "down", user=None).returncode == 0
    until(lambda: relay not in gpud.processes(), "the relay ends with its last child")
    shown.close()


@pytest.mark.parametrize("way", ["as root", "through sudo"])
def test_nothing_a_shell_was_given_reaches_gpud_or_dockerd(gpud: World, way: str) -> None:
    settings = gpud.path("/etc/gpud/gpud.toml")
    before = settings.read_text()
    gpud.write("/run/bin/dockerd", SPEAKS, 0o755)
    settings.write_text(before.replace('"off"', '"manage"\nbinary = "/run/bin/dockerd"'))
    try:
        line = [GPUD, "up"] if way == "as root" else ["sudo", "-n", GPUD, "up"]
        user = None if way == "as root" else USER
        begun = gpud.run("/usr/bin/python3", "-c", ODD, *line, user=user)
        assert begun.returncode == 0, begun.stderr
        pid = supervisor(gpud)
        until(lambda: gpud.path("/run/seen").exists(), "a dockerd")
        own = gpud.path(f"/proc/{pid}/status").read_text()
        dockerds = gpud.path("/run/seen").read_text()
        first = gpud.path("/proc/1/status").read_text()
        for text, ignored in (
            (own + gpud.path(f"/proc/{pid}/limits").read_text(), {signal.SIGPIPE, signal.SIGXFSZ}),
            (dockerds, set()),
        ):
            said = colon(text)
            assert int(said["SigBlk"], 16) == 0
            assert int(said["SigIgn"], 16) & ~sum(1 << (number - 1) for number in ignored) == 0
            assert said["Cpus_allowed"] == colon(first)["Cpus_allowed"]
            assert said["Umask"] == "0022"
            bounds = limits(text)
            if int(colon(first)["CapEff"], 16) & CAP_SYS_RESOURCE:
                assert bounds["Max file size"] == ["unlimited", "unlimited"]
                assert bounds["Max cpu time"] == ["unlimited", "unlimited"]
                assert bounds["Max open files"] == ["1024", "524288"]
            else:  # a container's root may not raise them: the soft ones go up to the hard ones
                assert bounds["Max file size"] == ["20000000", "20000000"]
                assert bounds["Max cpu time"] == ["60", "60"]
                assert bounds["Max open files"] == ["128", "128"]
        assert stat(gpud, pid)[16] == "0"  # nice
        assert gpud.path(f"/proc/{pid}/oom_score_adj").read_text() == "0\n"
        assert "/etc/hostname" not in files(gpud, pid).values()
    finally:
        settings.write_text(before)
        gpud.root("pkill -x sleep || true")
