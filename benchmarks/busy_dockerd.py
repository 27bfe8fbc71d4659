"""A busy dockerd that gpud keeps: whether it is left alone, and how silent it became.

    .venv/bin/python benchmarks/busy_dockerd.py [--minutes 10] [SCENARIO ...]

Each scenario has a gpud with its default limits, a private dockerd and ``--minutes``:

- ``containers``: 100 containers start, ten at a time, go, and start again.
- ``build``: ``docker build`` of an image whose steps compute, again and again.
- ``disk``: images arrive on a disk of its own that writes at once, 256 KiB a second (cgroup).
- ``silent_disk``: an image arrives there, and no ping is answered (authorization plugin).
- ``cpu``: dockerd and its containerd may use 5 % of a CPU (cgroup), while ten containers start.
- ``silent_cpu``: an image arrives with as little, and no ping is answered.
- ``pause``: everything, gpud first, stands still for 20 s of every 30 s (SIGSTOP).
- ``frozen``: all threads of dockerd are in state D for 75 s (cgroup freezer), then it runs again.

A client of the benchmark's own asks ``/_ping`` every half second, for 2 s at most. Needs root,
dockerd, a static busybox, and for three of them the controllers of cgroup version 1. Exit code 1
when a dockerd was ended.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import docker.errors
import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import authz
from tests.dockerd import PrivateDockerd, private_dockerd
from tests.e2e.program import Program, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CGROUP = Path("/sys/fs/cgroup")
FAULTS = (docker.errors.APIError, requests.RequestException)
"""A starved dockerd refuses and times out; what counts is that it is left alone."""
DOCKERFILE = """FROM busy:1
RUN i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; dd if=/dev/zero of=/a bs=1M count=8
RUN i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; rm /a
"""


@dataclass
class Busy:
    """One dockerd under load, and what asking it was like."""

    dockerd: PrivateDockerd
    gpud: Program
    plugin: authz.Plugin
    over: threading.Event = field(default_factory=threading.Event)
    pings: int = 0
    silent: int = 0
    longest_s: float = 0.0
    done: int = 0

    def ask(self) -> None:
        """Ping until it is over."""
        answered_s = time.monotonic()
        while not self.over.wait(0.5):
            self.pings += 1
            if self.answers():
                answered_s = time.monotonic()
            else:
                self.silent += 1
            self.longest_s = max(self.longest_s, time.monotonic() - answered_s)

    def answers(self) -> bool:
        """Say whether a ping has a good answer within 2 s."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(2.0)
            asking.connect(self.dockerd.socket)
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(4096)
        return False

    def again(self, work: Callable[[docker.APIClient, int], object], at_once: int) -> None:
        """Repeat a piece of work in some threads until it is over."""

        def repeat(worker: int) -> None:
            path = f"unix://{self.dockerd.socket}"
            with contextlib.closing(docker.APIClient(path, timeout=300)) as client:
                while not self.over.is_set():
                    with contextlib.suppress(*FAULTS):
                        work(client, worker)
                        self.done += 1

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(repeat, range(at_once)))

    def family(self) -> list[int]:
        """Give dockerd and its containerd, without shims and what they run."""
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in self.dockerd.pids()}
        return [pid for pid, name in names.items() if name in ("dockerd", "containerd")]


def image(dockerd: PrivateDockerd) -> None:
    """Make an image of one static busybox."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add("/bin/busybox", arcname="bin/busybox")
        for name in ("sh", "dd", "rm", "sleep"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    with contextlib.closing(dockerd.client()) as client:
        client.import_image_from_data(archive.getvalue(), repository="busy", tag="1")


def start_containers(client: docker.APIClient, _: int, count: int = 10) -> None:
    """Start some containers and remove them."""
    host = client.create_host_config(network_mode="none")
    made = []
    try:
        for _number in range(count):
            command = ["/bin/sleep", "1000"]
            made.append(client.create_container("busy:1", command, host_config=host)["Id"])
            client.start(made[-1])
    finally:
        for each in made:
            client.remove_container(each, force=True)


def build(client: docker.APIClient, worker: int) -> None:
    """Build an image without a cache and remove it."""
    lines = client.build(
        fileobj=io.BytesIO(DOCKERFILE.encode()),
        nocache=True,
        rm=True,
        tag=f"built:{worker}",
        network_mode="none",
        decode=True,
    )
    wrong = [line["error"] for line in lines if "error" in line]
    assert not wrong, wrong
    client.remove_image(f"built:{worker}", force=True)


def receive(client: docker.APIClient, worker: int) -> None:
    """Have an image of 4 MiB imported and removed."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("file")
        entry.size = 4 << 20
        tar.addfile(entry, io.BytesIO(os.urandom(entry.size)))
    client.import_image_from_data(archive.getvalue(), repository=f"received-{worker}", tag="1")
    client.remove_image(f"received-{worker}:1", force=True)


@contextlib.contextmanager
def limited(busy: Busy, controller: str, **limits: str) -> Iterator[Path]:
    """Have a cgroup of version 1 around dockerd and its containerd."""
    folder = CGROUP / controller / f"gpud-busy-{os.getpid()}"
    if not (CGROUP / controller / "cgroup.procs").exists():
        raise FileNotFoundError(f"no cgroup controller {controller} of version 1")
    folder.mkdir()
    try:
        for name, value in limits.items():
            (folder / f"{controller}.{name.replace('__', '.')}").write_text(value)
        for pid in busy.family():
            (folder / "cgroup.procs").write_text(str(pid))
        yield folder
    finally:
        with contextlib.suppress(OSError):
            (folder / "freezer.state").write_text("THAWED")
        for left in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (CGROUP / controller / "cgroup.procs").write_text(left)
        folder.rmdir()


def silent(busy: Busy) -> None:
    """Have one image arrive, and nothing answered."""
    with authz.importing(busy.dockerd, 4096):
        busy.plugin.silence()
        busy.over.wait()
        busy.plugin.speak()


def slow_cpu(busy: Busy) -> contextlib.AbstractContextManager[Path]:
    """Have 5 % of a CPU for dockerd and its containerd."""
    return limited(busy, "cpu", cfs_period_us="100000", cfs_quota_us="5000")


def slow_disk(busy: Busy) -> contextlib.AbstractContextManager[Path]:
    """Have 256 KiB a second written to the disk of the data root."""
    device = (busy.dockerd.root / "data").stat().st_dev
    rate = f"{os.major(device)}:{os.minor(device)} {256 << 10}"
    return limited(busy, "blkio", throttle__write_bps_device=rate)


def containers(busy: Busy) -> None:
    """Have 100 containers start, over and over."""
    busy.again(start_containers, 10)


def builds(busy: Busy) -> None:
    """Have two builds at a time."""
    busy.again(build, 2)


def disk(busy: Busy) -> None:
    """Have images arrive on a disk that takes 256 KiB a second."""
    with slow_disk(busy):
        busy.again(receive, 4)


def silent_disk(busy: Busy) -> None:
    """Have one image arrive on the same disk, while nothing is answered."""
    with slow_disk(busy):
        silent(busy)


def own_disk(dockerd: PrivateDockerd) -> None:
    """Mount a disk of 1 GiB as the data root; each write waits until it is done."""
    file, folder = dockerd.root / "disk", dockerd.root / "data"
    folder.mkdir()
    with file.open("wb") as opened:
        opened.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", file], check=True)
    subprocess.run(["mount", "-o", "loop,sync", file, folder], check=True)


def cpu(busy: Busy) -> None:
    """Have containers start with a twentieth of a CPU."""
    with slow_cpu(busy):
        busy.again(partial(start_containers, count=1), 10)


def silent_cpu(busy: Busy) -> None:
    """Have one image arrive with as little, while nothing is answered."""
    with slow_cpu(busy):
        silent(busy)


def pause(busy: Busy) -> None:
    """Let everything stand still for 20 s of every 30 s, as a machine that sleeps."""
    assert busy.gpud.process is not None
    while not busy.over.wait(10):
        everything = [busy.gpud.process.pid, busy.gpud.agent_pid(), *busy.dockerd.pids()]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in filter(None, everything):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(20)
        busy.done += 1


def frozen(busy: Busy) -> None:
    """Keep dockerd in state D for 75 s."""
    with limited(busy, "freezer") as folder:
        (folder / "freezer.state").write_text("FROZEN")
        time.sleep(75)
        states = {
            thread.read_text().rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{busy.dockerd.dockerds()[0]}/task").glob("*/stat")
        }
        assert states == {"D"}, states
        (folder / "freezer.state").write_text("THAWED")
        until(busy.answers, "an answer", 30)
        busy.done += 1


SCENARIOS: dict[str, Callable[[Busy], None]] = {
    "containers": containers,
    "build": builds,
    "disk": disk,
    "silent_disk": silent_disk,
    "cpu": cpu,
    "silent_cpu": silent_cpu,
    "pause": pause,
    "frozen": frozen,
}


def run(name: str, minutes: float) -> bool:
    """Print one line; True when dockerd was left alone."""
    with (
        authz.plugin() as plugin,
        private_dockerd() as dockerd,
        program(dockerd=dockerd.settings(args=(*dockerd.args, plugin.flag))) as gpud,
    ):
        if name in ("disk", "silent_disk"):
            own_disk(dockerd)
        gpud.start()
        busy = Busy(dockerd, gpud, plugin)
        until(busy.answers, "dockerd")
        image(dockerd)
        before = dockerd.dockerds()
        timer = threading.Timer(minutes * 60, busy.over.set)
        asking = threading.Thread(target=busy.ask)
        begun_s = time.monotonic()
        timer.start()
        asking.start()
        try:
            SCENARIOS[name](busy)
        finally:
            busy.over.set()
            timer.cancel()
            asking.join()
        took_s = time.monotonic() - begun_s
        until(busy.answers, "an answer at the end", 120)
        log = (gpud.home / "var/log/gpud/root.log").read_text()
        alone = dockerd.dockerds() == before and '"terminate"' not in log and '"kill"' not in log
        print(
            f"{name:12} {took_s / 60:6.1f} min {busy.done:6} done {busy.silent:5} of {busy.pings:5}"
            f" pings silent, longest {busy.longest_s:6.1f} s  {'left alone' if alone else 'ENDED'}",
            flush=True,
        )
        return alone


def main() -> int:
    """Print a line for each scenario."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO")
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: dockerd does", file=sys.stderr)
        return 2
    results = [run(name, given.minutes) for name in given.scenarios or SCENARIOS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
