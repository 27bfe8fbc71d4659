"""This machine once more, to be changed at will: what is written lands in a directory of its own.

The programs and files are this machine's, seen through an overlay; processes, mounts, /run and /tmp
are apart. ``changed`` is the exact list of what was touched. The network is this machine's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
REAP = """
import os,signal
signal.pthread_sigmask(signal.SIG_BLOCK,{signal.SIGCHLD})
print('up',flush=True)
while signal.sigwait({signal.SIGCHLD}):
  try:
    while os.waitpid(-1,os.WNOHANG)[0]: pass
  except ChildProcessError: pass
"""
REAPER = ("/usr/bin/python3", "-ISc", REAP)
BOOT = """
mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys # one kernel for all
mount -t cgroup2 cgroup2 /sys/fs/cgroup
rm -rf /etc/systemd/system/*.wants
ln -s /dev/null /etc/systemd/system/systemd-tmpfiles-setup-dev.service
echo up
exec env -i container=docker /usr/lib/systemd/systemd --log-target=null >/dev/null 2>&1
"""
SYSTEMD = ("/bin/sh", "-ec", BOOT)
"""systemd as the first process, with no unit of the machine below enabled."""
ENTER = """
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/changes,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p ".$3"; mount --bind "$3" ".$3"
shift 3
exec chroot . "$@"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """One such machine while it runs: where its changes are, and its first process."""

    place: Path
    init: int

    @property
    def changes(self) -> Path:
        return self.place / "changes"

    @property
    def root(self) -> Path:
        """Its files while it runs."""
        return Path(f"/proc/{self.init}/root")

    def command(self, *argv: str | Path) -> list[str]:
        return [
            "nsenter",
            f"--target={self.init}",
            "--mount",
            "--pid",
            "--root",
            "env",
            "--chdir=/",
            *map(str, argv),
        ]

    def start(self, *argv: str | Path, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=environment(more),
        )

    def run(self, *argv: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=environment(more),
        )

    def well(self, *argv: str | Path) -> str:
        done = self.run(*argv)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def changed(self) -> dict[str, str]:
        """Every path that is not as on the machine below: what it is now, in one word or a hash."""
        return {
            str(path.relative_to(self.changes)): _what(path)
            for path in sorted(self.changes.rglob("*"))
        }


def environment(more: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/root", **more}


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[list[str]]:
    """A control group of its own; yields what starts a command as the first process in it."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    made = next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2") / name
    made.mkdir()
    enter = 'echo $$ >"$0/cgroup.procs"; exec unshare --cgroup "$@"'
    try:
        yield ["sh", "-ec", enter, str(made)]
    finally:
        events = made / "cgroup.events"
        until(lambda: "populated 0" in events.read_text(), "the last process of a machine to end")
        for folder in sorted((path for path in made.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        made.rmdir()


def _what(path: Path) -> str:
    seen = path.lstat()
    who = f"{seen.st_mode:o} {seen.st_uid} {seen.st_gid}"
    if path.is_symlink():
        return f"link {path.readlink()}"
    if path.is_dir():
        return f"dir {who}"
    if path.is_file():
        return f"file {who} {hash(path.read_bytes())}"
    return "removed"  # the overlay's own mark


@contextlib.contextmanager
def machine(shared: Path, *layers: Path, first: tuple[str, ...] = REAPER) -> Iterator[Machine]:
    """Start one over ``layers``, the uppermost first; ``shared`` is seen at its own path in it."""
    if os.geteuid() != 0:
        pytest.fail("mounting an overlay needs root: deploy/test runs pytest as root")
    with (
        tempfile.TemporaryDirectory(prefix="gpud-overlay-") as folder,
        contextlib.ExitStack() as stack,
    ):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        try:
            place = Path(folder)
            for name in ("changes", "work", "root"):
                (place / name).mkdir()
            below = ":".join([*map(str, layers), "/"])
            line = [*UNSHARE, "bash", "-ec", ENTER, "sh", below, folder, str(shared), *first]
            with subprocess.Popen(
                [*stack.enter_context(cgroup(place.name)), *line] if first is SYSTEMD else line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=environment({}),
            ) as outer:
                assert outer.stdout is not None
                try:
                    assert outer.stdout.readline() == b"up\n", "no overlay over / can be mounted"
                    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text()
                    yield Machine(place, int(children))
                finally:
                    outer.kill()
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
