"""A distribution in WSL with gpud installed, a container, shells and Prometheus, to be hurt.

Its files are this machine's below those that an installation adds, so that it is ready in seconds;
namespaces, init, control groups, terminals and /dev/dxg are those of ``tests/wsl``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from tests import overlay
from tests.e2e.program import alive, only
from tests.shell.world import MAKE, USER, World, install
from tests.standins.build import build_libcuda, build_libnvml
from tests.waiting import until
from tests.wsl.machine import HERE as WSL
from tests.wsl.machine import Machine, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.wsl.machine import Process
    from tests.wsl.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")
"""An overlay over / must have its changes in another file system."""
LIB = "usr/lib/wsl/lib"
CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
DAEMON = {"live-restore": True, "bridge": "none", "iptables": False, "storage-driver": "vfs"}
SETTINGS: dict[str, dict[str, Any]] = {
    "dockerd": {
        "ping_interval_s": 0.2,
        "ping_timeout_s": 1.0,
        "hung_after_s": 2.0,
        "kill_after_s": 1.5,
        "start_timeout_s": 25.0,  # dockerd waits 15 s where its API is open without TLS
        "backoff_max_s": 2.0,
    },
    "probes": only("cpu_call", "launch"),
    "cuda": {"start_limit_s": 5.0},
    "schedule": {
        "telemetry_interval_s": 0.5,
        "small_interval_s": 1.0,
        "large_interval_s": 3600.0,
        "context_budget": 0,
        "jitter_ratio": 0.0,
    },
    "gate": {"boot_grace_s": 0.0},
    "containers": {"probe": False},
    "alerts": {"group_wait_s": 1.0, "warm_up_s": 0.0},
}
"""What gives an injection ten seconds: short intervals, short limits, a short back-off."""
DISK_BYTES = 1 << 30
PAGE_BYTES = 4096
INSIDE = Path(__file__).with_name("inside.py")
GPUD = "http://127.0.0.1:9945"
SCRAPES = """
global: {scrape_interval: 1s}
scrape_configs: [{job_name: gpud, static_configs: [{targets: ["127.0.0.1:9945"]}]}]
"""
INIT_C = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
Series = tuple[str, tuple[tuple[str, str], ...]]


def toml(sections: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def make_layer(layer: Path) -> None:
    """Put what is there after ``deploy/install`` and before the first boot into ``layer``."""
    with overlay.machine(layer.parent) as under:
        world = World(under.init)
        world.root(MAKE)
        install(world, "/usr")
        world.root("/opt/gpud/bin/python -m compileall -q /opt/gpud/lib")
        world.write("/etc/gpud/gpud.toml", toml(SETTINGS))
        world.write("/etc/docker/daemon.json", json.dumps(DAEMON))
        world.write("/etc/ld.so.conf.d/ld.wsl.conf", f"/{LIB}\n")
        world.own(f"/home/{USER}/.bashrc", (ROOT / "bashrc.snippet").read_text())
        world.root("mkdir -p /usr/lib/wsl/lib; rm -f /etc/ld.so.preload")
        shutil.copy(WSL / "init.py", world.path("/init"))
        lib = world.path(f"/{LIB}")
        build_libcuda(lib, "launch_ns 2000\n")
        build_libnvml(lib)
        _build_clock(world.path("/usr/lib/clock.so"))
        _build_image(world.path("/pause.tar"))
        world.write("/etc/clock-offset", "\0" * 8)
        world.write("/etc/ld.so.preload", "/usr/lib/clock.so\n")
        subprocess.run(["cp", "-a", under.changes, layer], check=True)


def _build_clock(library: Path) -> None:
    source = Path(__file__).with_name("clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)


def _build_image(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "init")
        subprocess.run(
            ["cc", "-static", "-Os", "-x", "c", "-", "-o", binary],
            input=INIT_C,
            text=True,
            check=True,
        )
        with tarfile.open(archive, "w") as image:
            image.add(binary, "init")


@dataclass(slots=True)
class Distribution:
    """The machine, and what a person outside can see of it.

    ``beside`` is the folder of the Prometheus that scrapes it, which no fault touches; ``offset_s``
    is how far its wall clock is ahead; ``scripts`` are those of its driver while it is well.
    """

    machine: Machine
    beside: Path
    offset_s: float = 0.0
    scripts: dict[str, str] = field(default_factory=lambda: {CUDA: "launch_ns 2000\n", NVML: ""})
    _inside: subprocess.Popen[str] | None = None
    _prometheus: subprocess.Popen[bytes] | None = None
    _asking: threading.Lock = field(default_factory=threading.Lock)

    def boot(self) -> None:
        """Start it and open a window, whose hook starts gpud."""
        self.machine.boot()
        target = ["nsenter", "--target", str(self.init), "--net"]
        self._prometheus = subprocess.Popen(
            [
                *(*target, "prometheus", f"--config.file={self.beside}/prometheus.yml"),
                *(f"--storage.tsdb.path={self.beside}/data", "--log.level=error"),
                *("--web.listen-address=127.0.0.1:9090", "--storage.tsdb.retention.size=64MB"),
            ]
        )
        self._inside = subprocess.Popen(
            [*target, "--mount", "/usr/bin/python3", "-I", "-S", "-c", INSIDE.read_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"LC_ALL": "C.UTF-8"},
        )
        for library in self.scripts:
            self.script(library)  # copies it up from the layer while there is room
        self.move_clock(0.0)  # what is mapped from now on is the file that changes
        self.open_shell()

    @property
    def init(self) -> int:
        return self.machine.init

    def shutdown(self) -> None:
        """``wsl --shutdown``."""
        with self._asking:
            if self._inside is not None:
                self._inside.kill()
                self._inside.communicate()
                self._inside = None
            if self._prometheus is not None:
                self._prometheus.terminate()
                self._prometheus.wait()
                self._prometheus = None
        self.machine.shutdown()

    def path(self, inside: str) -> Path:
        return self.machine.root / inside.lstrip("/")

    def open_shell(self) -> Terminal:
        """Open a window, and do not wait for its prompt."""
        window = self.machine.terminal(USER, wait=False)
        window.open()
        return window

    def ask(self, *question: object) -> Any:
        """What ``inside.py`` answers; None for what cannot be had, and after a shutdown."""
        with self._asking:
            if self._inside is None or self._inside.stdin is None or self._inside.stdout is None:
                return None
            self._inside.stdin.write(json.dumps(question) + "\n")
            self._inside.stdin.flush()
            return json.loads(self._inside.stdout.readline())

    def status(self) -> dict[str, Any]:
        """The document that the agent published last, {} without one."""
        with contextlib.suppress(OSError, ValueError):
            document: dict[str, Any] = json.loads(
                self.path("/run/gpud/agent/agent.json").read_bytes()
            )
            return document
        return {}

    def health(self) -> dict[str, tuple[int, str]]:
        """Components that are not well: level and reason."""
        return {
            name: (value["level"], value["reason"])
            for name, value in self.status().get("health", {}).items()
            if value["level"]
        }

    def report(self) -> dict[str, Any]:
        with contextlib.suppress(ValueError):
            return self.machine.report()
        return {}

    def dockerd(self) -> dict[str, Any]:
        return self.report().get("dockerd") or {}

    def processes(self) -> list[Process]:
        """What lives in it, containers' own processes left out."""
        own = Path(f"/proc/{self.init}/ns/pid").readlink()
        members = Path("/sys/fs/cgroup/freezer", self.machine.groups.name)
        found = []
        for file in (members / "cgroup.procs", *members.rglob("*/cgroup.procs")):
            with contextlib.suppress(OSError):
                for pid in file.read_text().split():
                    with contextlib.suppress(OSError):
                        entry = Path("/proc", pid)
                        if (entry / "ns/pid").readlink() == own and alive(int(pid)):
                            found.append(describe(entry))
        return found

    def named(self, name: str) -> list[Process]:
        """Those of a name; what one has just forked is its double until it is another."""
        found = {one.pid: one for one in self.processes() if one.name == name}
        return [one for one in found.values() if one.parent not in found]

    def metrics(self) -> dict[Series, float]:
        """One scrape, {} while nobody answers."""
        text = self.ask("get", f"{GPUD}/metrics", 3.0)
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text or "")
            for sample in family.samples
        }

    def scraped(self) -> bool:
        """Whether the last scrape of Prometheus had an answer."""
        answer = self.ask("get", "http://127.0.0.1:9090/api/v1/query?query=up", 3.0)
        results = json.loads(answer)["data"]["result"] if answer else []
        return [each["value"][1] for each in results] == ["1"]

    def runs(self) -> set[int] | None:
        """Ids of the runs that another process can read: what has been promised to last."""
        rows = self.ask("sql", "SELECT id FROM runs")
        return None if rows is None else {row[0] for row in rows}

    def last_good_run(self) -> int:
        """Id of the last run on the GPU that brought a figure, 0 without one."""
        rows = self.ask("sql", "SELECT max(id) FROM runs WHERE probe='launch' AND failure IS NULL")
        return (rows and rows[0][0]) or 0

    def script(self, library: str, text: str | None = None) -> None:
        """Add lines to the script of CUDA or NVML; without any it is what it was.

        It is written over what is there: a full disk has no room for another file.
        """
        with self.path(f"{LIB}/{library}.script").open("r+b") as file:
            file.write((self.scripts[library] + (text or "")).ljust(PAGE_BYTES, "\n").encode())

    def root(self, script: str) -> str:
        """Run a script of the shell as root in it."""
        return self.machine.run("sh", "-c", script, check=False).stdout

    def move_clock(self, by_s: float) -> None:
        self.offset_s += by_s
        with self.path("/etc/clock-offset").open("r+b") as file:
            file.write(struct.pack("=q", int(self.offset_s * 1e9)))

    def freeze(self, *, frozen: bool) -> None:
        """Let no process of it run, or all again, as a virtual machine that is paused."""
        group = Path("/sys/fs/cgroup/freezer", self.machine.groups.name, "freezer.state")
        group.write_text("FROZEN" if frozen else "THAWED")
        until(lambda: group.read_text().strip() == ("FROZEN" if frozen else "THAWED"), "freezer")

    def full(self, *, full: bool) -> None:
        """Leave no room on its disk, or as much as there was."""

        def resized() -> bool:  # what is written meanwhile does not fit
            used = os.statvfs(self.machine.place)
            size = (used.f_blocks - used.f_bfree) * used.f_frsize if full else DISK_BYTES
            remount = ["mount", "-o", f"remount,size={size}", str(self.machine.place)]
            return subprocess.run(remount, check=False).returncode == 0

        until(resized, "another size of the disk")


@contextlib.contextmanager
def layer() -> Iterator[Path]:
    """The files of an installation, for as many distributions as are wanted."""
    if os.geteuid() != 0:
        raise SystemExit("deploy/chaos: needs root: it makes namespaces and mounts")
    folder = Path(tempfile.mkdtemp(prefix="gpud-chaos-", dir=MEMORY))
    try:
        make_layer(folder / "layer")
        yield folder / "layer"
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def distribution(below: Path) -> Iterator[Distribution]:
    """A fresh one, not booted yet; nothing is left of it afterwards."""
    place = Path(tempfile.mkdtemp(prefix="gpud-chaos-", dir=MEMORY))
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "gpud-chaos", place], check=True)
    beside = Path(tempfile.mkdtemp(prefix="gpud-chaos-prometheus-", dir=MEMORY))
    (beside / "prometheus.yml").write_text(SCRAPES)
    made = Distribution(Machine(place, (below, Path("/"))), beside)
    try:
        yield made
    finally:
        made.shutdown()
        shutil.rmtree(beside)
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()
