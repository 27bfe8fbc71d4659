"""A dockerd of a test's own: its socket, roots and pid file, and nothing of it left afterwards."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker

from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

INIT_C = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


@dataclass(frozen=True)
class PrivateDockerd:
    """Names of everything; nothing is started here."""

    root: Path

    @property
    def socket(self) -> str:
        return str(self.root / "docker.sock")

    @property
    def pidfile(self) -> str:
        return str(self.root / "docker.pid")

    @property
    def args(self) -> tuple[str, ...]:
        return (
            f"--data-root={self.root / 'data'}",
            f"--exec-root={self.root / 'exec'}",
            "--iptables=false",
            "--bridge=none",
            "--ip-masq=false",
            "--storage-driver=vfs",
            "--live-restore",
        )

    def settings(self, **more: Any) -> dict[str, Any]:
        """The ``[dockerd]`` section for a gpud that keeps this one."""
        return {
            "policy": "auto",
            "socket": self.socket,
            "pidfile": self.pidfile,
            "args": self.args,
            **more,
        }

    def argv(self) -> list[str]:
        return ["dockerd", *self.args, "-H", f"unix://{self.socket}", "--pidfile", self.pidfile]

    def answers(self) -> bool:
        """Say whether it answers a ping: its socket is there before it accepts a connection."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(30)
            asking.connect(self.socket)
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(4096)
        return False

    def client(self) -> docker.APIClient:
        return docker.APIClient(base_url=f"unix://{self.socket}", timeout=LIMIT_S)

    def pids(self) -> list[int]:
        """Every living process of it: dockerd, containerd, shims and what they run."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                name = (entry / "comm").read_text()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                ours = str(self.root).encode() in command and name.startswith(
                    ("dockerd", "containerd")
                )
                if ours and state not in "ZX":
                    found.append(int(entry.name))
        return found

    def dockerds(self) -> list[int]:
        """Every living dockerd; what one has just forked is its double until it is another."""
        parents: dict[int, int] = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if Path(f"/proc/{pid}/comm").read_text() == "dockerd\n":
                    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
                    parents[pid] = int(stat.split()[1])
        return [pid for pid, parent in parents.items() if parent not in parents]

    def containers(self) -> list[int]:
        """First processes of the containers: the children of the shims."""
        found: list[int] = []
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("containerd-shim"):
                    for task in Path(f"/proc/{pid}/task").glob("*/children"):
                        found += [int(child) for child in task.read_text().split()]
        return found

    def run_container(self) -> str:
        """Import an image of one static binary and run it; gives the container's id."""
        binary = self.root / "init"
        subprocess.run(
            ["cc", "-static", "-Os", "-x", "c", "-", "-o", binary],
            input=INIT_C,
            text=True,
            check=True,
        )
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(binary, arcname="init")
        with contextlib.closing(self.client()) as client:
            client.import_image_from_data(archive.getvalue(), repository="pause", tag="1")
            host = client.create_host_config(network_mode="none")
            made = client.create_container("pause:1", command=["/init"], host_config=host)
            client.start(made["Id"])
            return str(made["Id"])

    def pid_of(self, container: str) -> int:
        """Give the first process of a container, 0 for one that has ended."""
        with contextlib.closing(self.client()) as client:
            state = client.inspect_container(container)["State"]
            return int(state["Pid"]) if state["Running"] else 0


@contextlib.contextmanager
def private_dockerd() -> Iterator[PrivateDockerd]:
    """Give names below a short path (a socket's has at most 107 characters), and clean up."""
    root = Path(tempfile.mkdtemp(prefix="gpud-dockerd-"))
    made = PrivateDockerd(root)
    try:
        yield made
    finally:
        _end_everything(made)
        shutil.rmtree(root, ignore_errors=True)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end_everything(made: PrivateDockerd) -> None:
    begun_s = time.monotonic()
    _signal(made.containers(), signal.SIGKILL)
    while (left := made.pids()) and time.monotonic() < begun_s + LIMIT_S:
        gently = time.monotonic() < begun_s + 10
        _signal(left, signal.SIGCONT)
        _signal(left, signal.SIGTERM if gently else signal.SIGKILL)
        time.sleep(0.1)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(str(made.root))), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    assert not made.pids(), "a dockerd of the tests is still there"
