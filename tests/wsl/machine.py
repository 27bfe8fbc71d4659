"""A distribution as WSL2 gives it to a person: no systemd, a fresh /run, processes behind relays.

Real: this machine's Debian, its dockerd, sudo, bash on a pty, namespaces, control groups, mounts.
Made up: what the kernel calls itself, /dev/dxg (a node that does nothing) and the driver's
libraries. One thing differs from WSL2, where all distributions share a network: this one has a
network of its own, so that docker0, ports and the firewall of the machine stay as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.program import alive, children_of
from tests.shell.world import USER
from tests.wsl.cgroups import Groups
from tests.wsl.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
RELEASE = "5.15.167.4-microsoft-standard-WSL2"
VERSION = (
    f"Linux version {RELEASE} (root@f9c826d3017f) (gcc (GCC) 11.2.0, GNU ld (GNU Binutils) 2.37)"
    " #1 SMP Tue Nov 5 00:21:55 UTC 2024\n"
)
NAMESPACES = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
JOIN = 'for group in $1; do echo $$ >"$group"; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class Process:
    """``pid`` and ``parent`` as seen from out here; ``inner`` as seen from inside."""

    pid: int
    inner: int
    parent: int
    name: str
    uid: int
    command: str


@dataclass(slots=True)
class Machine:
    """A distribution whose changes to the layers below it are kept in ``place`` between boots."""

    place: Path
    layers: tuple[Path, ...]
    init: int = 0
    unshare: subprocess.Popen[bytes] | None = None
    terminals: list[Terminal] = field(default_factory=list)

    @property
    def changes(self) -> Path:
        return self.place / "changes"

    @property
    def groups(self) -> Groups:
        return Groups(f"gpud-{self.place.name}")

    @property
    def root(self) -> Path:
        """Its files, looked at from out here while it runs; absolute links lead astray."""
        return Path(f"/proc/{self.init}/root")

    def boot(self) -> None:
        for name in ("changes", "work", "root", "docker", "proc"):
            (self.place / name).mkdir(exist_ok=True)
        self.groups.make()
        for name, text in {
            "version": VERSION,
            "osrelease": f"{RELEASE}\n",
            "uptime": "3600.00 3600.00\n",  # beyond the grace of a boot, whatever runs this
            "cgroups": self.groups.table(),
        }.items():
            (self.place / "proc" / name).write_text(text)
        below = ":".join(map(str, self.layers))
        # A disk can rename a directory of its own; without redirect_dir an overlay cannot always.
        kept = f"upperdir={self.changes},workdir={self.place / 'work'},redirect_dir=on"
        overlay = f"lowerdir={below},{kept}"
        given = [self.place / "root", overlay, self.place / "docker", self.place / "proc"]
        self.unshare = subprocess.Popen(
            self._joined("unshare", *NAMESPACES, "--fork", "--kill-child", "bash", HERE / "boot.sh")
            + [str(g) for g in given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        assert self.unshare.stdout is not None
        assert self.unshare.stderr is not None
        if self.unshare.stdout.readline() != b"up\n":
            raise AssertionError(f"it does not boot: {self.unshare.stderr.read().decode()}")
        pid = self.unshare.pid
        self.init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def shutdown(self) -> None:
        """``wsl --shutdown``: everything ends at once, and nothing is told."""
        if self.unshare is not None:
            if self.init:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.init, 9)
            self.unshare.communicate()
            self.unshare, self.init = None, 0
        for terminal in self.terminals:
            terminal.discard()
        self.terminals.clear()
        self.groups.remove()

    def terminal(
        self, user: str = USER, argv: tuple[str, ...] = ("/bin/bash", "-i"), *, wait: bool = True
    ) -> Terminal:
        """Open a window; with ``wait`` its prompt is there, else not even its shell."""
        take, give = os.pipe()
        near, far = socket.socketpair()
        inside = ["/usr/bin/python3", "-I", "-S", "/init", "relay", str(take), user, *argv]
        relay = subprocess.Popen(
            self.inside(*inside),
            stdin=far.fileno(),
            stdout=far.fileno(),
            pass_fds=[take],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        os.close(take)
        far.close()
        opened = Terminal(relay, near, os.fdopen(give, "wb"))
        self.terminals.append(opened)
        if opened.channel.recv(1) != b"\0":
            raise AssertionError("the relay did not start")
        if wait:
            opened.open()
            opened.expect(r"[$#] ")
        return opened

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program as root inside, without a terminal."""
        return subprocess.run(
            self.inside(*argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )

    def processes(self) -> list[Process]:
        """What lives in it, containers' own processes left out."""
        own = Path(f"/proc/{self.init}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == own:
                    found.append(describe(entry))
        return [process for process in found if alive(process.pid)]

    def named(self, name: str) -> list[Process]:
        """Those of a name; what one has just forked is its double until it is another."""
        found = {one.pid: one for one in self.processes() if one.name == name}
        return [
            one
            for one in found.values()
            if one.parent not in found or found[one.parent].command != one.command
        ]

    def report(self) -> dict[str, Any]:
        """What root says of itself in this boot, {} while it says nothing."""
        with contextlib.suppress(OSError):
            said: dict[str, Any] = json.loads((self.root / "run/gpud/root.json").read_bytes())
            return said
        return {}

    def containers(self) -> list[int]:
        """First processes of containers, as seen from out here: the children of the shims."""
        return [c for shim in self.named("containerd-shim") for c in children_of(shim.pid)]

    def inside(self, *argv: str) -> list[str]:
        """Build the line that runs a program as root inside."""
        return self._joined(*self._entered(*argv))

    def _entered(self, *argv: str) -> list[str]:
        return ["nsenter", "--target", str(self.init), *NAMESPACES, *argv]

    def _joined(self, *argv: object) -> list[str]:
        """Join the machine's control groups first, so that they are the whole for what runs."""
        groups = " ".join(self.groups.files())
        return ["bash", "--norc", "-ec", JOIN, "bash", groups, *(str(a) for a in argv)]


def describe(entry: Path) -> Process:
    status = dict(
        line.split(":\t", 1)
        for line in (entry / "status").read_text().splitlines()
        if ":\t" in line
    )
    return Process(
        pid=int(entry.name),
        inner=int(status["NSpid"].split()[-1]),
        parent=int(status["PPid"]),
        name=status["Name"],
        uid=int(status["Uid"].split()[0]),
        command=(entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
    )


@contextlib.contextmanager
def machine(place: Path, *layers: Path) -> Iterator[Machine]:
    """A machine to boot, and nothing left of it afterwards but ``place / "changes"``."""
    place.mkdir(exist_ok=True)
    made = Machine(place, layers)
    try:
        yield made
    finally:
        made.shutdown()
