"""The whole program, started as a person starts it, and looked at from outside only."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from gpud.child import probes
from tests.standins.build import build_libcuda, build_libnvml, rewrite_script
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def only(*names: str) -> dict[str, Any]:
    """Settings that leave these probes on and no other."""
    every = {file.stem for file in Path(probes.__file__).parent.glob("[a-z]*.py")}
    assert set(names) <= every
    return {"disabled": sorted(every - set(names))}


LIBFAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
QUICK: dict[str, dict[str, Any]] = {
    "dockerd": {"policy": "off"},
    "probes": only("cpu_call", "launch"),
    "nvml": {"library": "/nonexistent/libnvidia-ml.so.1"},
    "cuda": {"library": "/nonexistent/libcuda.so.1"},
    "schedule": {
        "telemetry_interval_s": 0.5,
        "small_interval_s": 1.0,
        "large_interval_s": 5.0,
        "jitter_ratio": 0.0,
    },
}
"""Nothing of the machine is touched unless a test says so, and things happen soon."""


def free_port() -> int:
    """Give a port that the kernel gives to nobody else while this process lives.

    It is bound and not listened on: who names it may listen, as often as he likes, and who asks for
    any port gets another one.
    """
    chosen = socket.socket()
    chosen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    chosen.bind(("127.0.0.1", 0))
    port: int = chosen.getsockname()[1]
    chosen.detach()
    return port


def alive(pid: int) -> bool:
    """Zombies do not count."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    """Direct children, living ones."""
    result = []
    for task in Path("/proc", str(pid), "task").glob("*/children"):
        with contextlib.suppress(OSError):
            result += [int(child) for child in task.read_text().split()]
    return [child for child in result if alive(child)]


def cuda(home: Path, script: str = "", without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Settings for a stand-in driver that the agent's user can read."""
    return {"library": str(build_libcuda(_driver(home), script, without))}


def nvml(home: Path, script: str = "") -> dict[str, Any]:
    """The same for its NVML."""
    return {"library": str(build_libnvml(_driver(home), script))}


def _driver(home: Path) -> Path:
    folder = home / "driver"
    folder.mkdir(exist_ok=True)
    return folder


def as_nobody(home: Path) -> list[str]:
    """Become nobody, and still reach an interpreter that may lie below /root."""
    interpreter = {sys.prefix, sys.base_prefix, str(Path(sys.executable).parent)}
    needed = {*interpreter, str(home), str(Path(__file__).resolve().parents[2])}
    line = [sys.executable, "-I", "-m", "gpud.root.drop", "--user", "nobody"]
    for place in sorted(needed):
        line += ["--need", place]
    return [*line, "--"]


@dataclass
class Program:
    """One gpud in a home of its own: ``start`` it, look at it over HTTP and files, ``stop`` it."""

    home: Path
    settings: dict[str, dict[str, Any]]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    sysroot: str = "/"
    python: Path = Path(sys.executable)
    clock: Path | None = None  # the agent runs alone, under a wall clock that ``move`` sets

    @property
    def run_dir(self) -> Path:
        return self.home / "run/gpud"

    @property
    def config(self) -> Path:
        return self.home / "etc/gpud/gpud.toml"

    def write_settings(self) -> None:
        sections = {**QUICK, **self.settings}
        sections["http"] = {"listen": f"127.0.0.1:{self.port}", **sections.get("http", {})}
        lines = [] if self.sysroot == "/" else [f"sysroot = {json.dumps(self.sysroot)}"]
        for name, values in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        self.write_settings()
        words, environ = ["gpud", "--home", str(self.home), "run"], {}
        if self.clock is not None:
            assert LIBFAKETIME is not None, "sudo apt-get install libfaketime"
            self.move(0)
            words = ["gpud.agent", "--home", str(self.home)]
            environ = {
                "LD_PRELOAD": str(LIBFAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with (self.home / "console.log").open("ab") as console:
            self.process = subprocess.Popen(
                [self.python, "-I", "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if not k.startswith("GPUD_")} | environ,
            )

    def move(self, offset_s: float) -> None:
        """Set how far the wall clock of the agent is ahead of the true one.

        The monotonic clock is left alone: a guest that was paused sees just that. Children have
        the true clock, because the agent gives them an environment of their own.
        """
        assert self.clock is not None
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(f"{offset_s:+f}\n")
        fresh.rename(self.clock)

    def command(self, *words: str) -> list[str]:
        return [str(self.python), "-I", "-m", "gpud", "--home", str(self.home), *words]

    def rewrite(self, library: str, script: str) -> None:
        """Replace the script of the stand-in "cuda" or "nvml" for what loads it from now on."""
        rewrite_script(Path(self.settings[library]["library"]), script)

    def kill_nvml_helper(self) -> None:
        """Let the process die that speaks to NVML, as it does when the driver under it goes."""
        os.kill(until(self.nvml_helper, "the helper of NVML"), signal.SIGKILL)

    def cli(self, *words: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        line = [*before, *self.command(*words)]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd="/"
        )

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin a verb, whose output can be read."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*words), stdout=pipe, stderr=pipe, text=True, cwd="/")

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=LIMIT_S)
        self.process = None
        return code

    def console(self) -> str:
        return (self.home / "console.log").read_text(errors="replace")

    def logs(self) -> str:
        """Everything gpud wrote about itself."""
        files = sorted((self.home / "var/log/gpud").rglob("*.log*"))
        return "\n".join([self.console(), *(f.read_text(errors="replace") for f in files)])

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}{path}", timeout=LIMIT_S
        ) as answer:
            body: bytes = answer.read()
            return body

    def status(self) -> dict[str, Any] | None:
        """What /api/v1/status says, None while nobody answers."""
        with contextlib.suppress(OSError, urllib.error.URLError):
            document: dict[str, Any] = json.loads(self.get("/api/v1/status"))
            return document
        return None

    def status_when(self, good: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Wait until the status is good, and give it."""

        def look() -> dict[str, Any] | None:
            document = self.status()
            return document if document is not None and good(document) else None

        try:
            return until(look, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\nlast: {self.status()}\n{self.logs()[-6000:]}") from None

    def health(self, component: str, level: int, reason: str | None = None) -> dict[str, Any]:
        """Wait until a component is at ``level`` (for ``reason``) and give what it says."""
        document = self.status_when(
            lambda d: (
                (h := d["health"].get(component)) is not None
                and h["level"] == level
                and (reason is None or h["reason"] == reason)
            ),
            f"health of {component} at {level} for {reason}",
        )
        result: dict[str, Any] = document["health"][component]
        return result

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """One scrape: (name, sorted labels) -> value; empty while nobody answers."""
        try:
            text = self.get("/metrics").decode()
        except (OSError, urllib.error.URLError):
            return {}
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics().get((name, tuple(sorted(labels.items()))))

    def runs(self, probe: str = "cpu_call") -> float:
        return self.value("gpud_probe_runs_total", probe=probe) or 0.0

    def more_runs(self, probe: str = "cpu_call", count: int = 1) -> None:
        """Wait until a probe has run so many times more."""
        before = self.runs(probe)
        until(lambda: self.runs(probe) >= before + count, f"{count} more runs of {probe}")

    def skips(self, probe: str, reason: str) -> float:
        return self.value("gpud_probe_skips_total", probe=probe, reason=reason) or 0.0

    def median(self, probe: str = "launch", mode: str = "submit", gpu: str = "0") -> float | None:
        """The last median of a latency."""
        name = "gpud_probe_latency_median_seconds"
        return self.value(name, gpu=gpu, probe=probe, mode=mode)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What /api/v1/events gives of one kind, oldest first."""
        with contextlib.suppress(OSError, urllib.error.URLError):
            result: list[dict[str, Any]] = json.loads(self.get(f"/api/v1/events?kind={kind}"))[
                "events"
            ]
            return result[::-1]
        return []

    def agent_pid(self) -> int | None:
        """The agent root reports, None while there is none alive."""
        if self.clock is not None:
            return None if self.process is None else self.process.pid
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads((self.run_dir / "root.json").read_bytes())
            pid: int = document["agent"]["process"]["pid"]
            return pid if alive(pid) else None
        return None

    def nvml_helper(self) -> int | None:
        """The agent's process that speaks to NVML, None while there is none."""
        for pid in children_of(self.agent_pid() or 0):
            with contextlib.suppress(OSError):
                if b"gpud.agent.telemetry.nvml" in Path("/proc", str(pid), "cmdline").read_bytes():
                    return pid
        return None


@contextlib.contextmanager
def program(**settings: dict[str, Any]) -> Iterator[Program]:
    """A home that any user can reach, a gpud to start in it, and nothing left afterwards."""
    home = Path(tempfile.mkdtemp(prefix="gpud-e2e-"))
    home.chmod(0o755)
    made = Program(home=home, settings=settings)
    try:
        yield made
    finally:
        if made.process is not None:
            made.stop()
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def under_a_clock(**settings: dict[str, Any]) -> Iterator[Program]:
    """The same with the agent alone, under a wall clock that ``move`` sets."""
    with program(**settings) as made:
        made.clock = made.home / "offset"
        yield made
