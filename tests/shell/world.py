"""A machine of a test's own: gpud below /opt, real sudo with its rule, users without rights."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.overlay import machine
from tests.terminals import Window
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
USER, STRANGER = "person", "stranger"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "HOME": f"/home/{USER}",
    "USER": USER,
}
ROOT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NOT_NEEDED = (
    "numpy*",
    "apprise*",
    "oauthlib*",
    "mypy*",
    "*mypyc*",
    "ruff*",
    "pip*",
    "grimp*",
    "__pycache__",
    "*gpud*",
)
MAKE = """
chmod 755 /home /opt
echo "127.0.1.1 $(cat /proc/sys/kernel/hostname)" >>/etc/hosts  # sudo looks its own machine up
useradd --system --user-group --no-create-home gpud 2>/dev/null || true
for user in person stranger; do
  useradd --create-home --user-group --shell /bin/bash "$user"
  chmod 755 "/home/$user"
done
rm -f /etc/sudoers.d/*
"""


@dataclass
class World:
    """One such machine. ``init`` is its first process, as this side numbers it."""

    init: int

    def path(self, inside: str) -> Path:
        """Where a file of it is for this side."""
        return Path(f"/proc/{self.init}/root{inside}")

    def argv(self, *command: str, user: str | None = USER) -> list[str]:
        """Build the line that runs a command in it, as root for ``user=None``."""
        # Its root as well: below a chroot, the namespace's own is that of the machine outside.
        line = ["nsenter", "--target", str(self.init), "--mount", "--pid", "--root"]
        line += ["env", "--chdir=/", "--"]
        if user is not None:
            line += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*line, *command]

    def window(self, *command: str) -> Window:
        """Start a program of the user's in a terminal window."""
        return Window(self.argv(*command), ENVIRONMENT)

    def run(
        self,
        *command: str,
        user: str | None = USER,
        environ: dict[str, str] | None = None,
        within_s: float | None = LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command, user=user),
            env=ENVIRONMENT | (environ or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=within_s,
        )

    def root(self, script: str) -> str:
        """Run a shell script as root in it; it must succeed."""
        done = self.run("sh", "-euc", script, user=None, environ={"PATH": ROOT_PATH})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, inside: str, text: str, mode: int = 0o644) -> None:
        path = self.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def own(self, inside: str, text: str, mode: int = 0o644) -> None:
        """Write a file that belongs to the user, as do the directories made for it."""
        home = self.path(f"/home/{USER}")
        self.write(inside, text, mode)
        facts = home.stat()
        for made in (self.path(inside), *self.path(inside).parents):
            if made == home:
                break
            os.chown(made, facts.st_uid, facts.st_gid)

    @contextlib.contextmanager
    def covered(self, inside: str, script: str) -> Iterator[None]:
        """Put another program in place of one, for as long as a test needs it."""
        cover = f"/run/cover{inside.replace('/', '.')}"
        self.write(cover, script, 0o755)
        self.root(f"mount --bind {cover} {inside}")
        try:
            yield
        finally:
            self.root(f"umount --lazy {inside}")

    def processes(self) -> dict[int, str]:
        """Living processes by the pid they have inside, with their command lines."""
        found = {}
        for entry in self.path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != "1":
                with contextlib.suppress(OSError):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if state not in "ZX":
                        found[int(entry.name)] = line.strip()
        return found

    def sleeper(self) -> tuple[int, int]:
        """Begin a process that only lives; gives its pid and start time as the shells see them."""
        pid = int(self.root("setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
        return pid, self.started(pid)

    def started(self, pid: int) -> int:
        stat = self.path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[19])

    def reset(self) -> None:
        """End every process in it, and forget what gpud and the user left."""
        self.root(
            "for pid in $(ls /proc | grep -x '[0-9]*'); do"
            '  [ "$pid" = 1 ] || [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null || true; done;'
            "find /run -mindepth 1 -xdev -delete;"
            f"find /home/{USER} -mindepth 1 -delete"
        )


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Make one, with gpud installed, and end every process of it afterwards."""
    with machine(Path(sys.base_prefix)) as overlay:
        made = World(overlay.init)
        made.root(MAKE)
        if sys.base_prefix != "/usr":  # where only root has a say on the way
            made.root(f"mkdir /opt/python; mount --bind {sys.base_prefix} /opt/python")
        install(made, "/usr" if sys.base_prefix == "/usr" else "/opt/python")
        yield made


def install(world: World, base: str) -> None:
    """Put the tree in place as it is installed: a root-owned environment and the rule."""
    python = f"{base}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    world.root(f"umask 022; {python} -m venv --without-pip /opt/gpud")
    [library] = world.path("/opt/gpud/lib").glob("python*")
    [installed] = Path(sys.prefix, "lib").glob("python*")
    packages = library / "site-packages"
    shutil.copytree(
        installed / "site-packages",
        packages,
        ignore=shutil.ignore_patterns(*NOT_NEEDED),
        dirs_exist_ok=True,
    )
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gpud", packages / "gpud", ignore=unwanted)
    world.root("chown -R root:root /opt/gpud; chmod -R go-w /opt/gpud")
    shutil.copy(ROOT / "deploy/gpud-command", world.path("/opt/gpud/bin/gpud"))
    shutil.copy(ROOT / "deploy/gpud-start", world.path("/opt/gpud/bin/gpud-start"))
    world.root("mkdir -p /usr/local/bin")
    rule = (ROOT / "sudoers.snippet").read_text().replace("\n%sudo ", f"\n{USER} ")
    world.write("/etc/sudoers.d/gpud", rule, 0o440)
    world.root("visudo -cf /etc/sudoers.d/gpud")
    world.write(
        "/etc/gpud/gpud.toml",
        '[dockerd]\npolicy = "off"\n[cuda]\nlibrary = "/nonexistent/libcuda.so.1"\n'
        '[nvml]\nlibrary = "/nonexistent/libnvidia-ml.so.1"\n[http]\nlisten = "127.0.0.1:0"\n',
    )
