"""Golden outputs of one real agent: what users, dashboards and scripts read, with values left out.

The agent serves a history of schema 5 with two driver updates that slowed submissions down. The
first was acknowledged and accepted; the second fires, is accepted in part and then wholly, while
all six sinks listen. ``pytest tests/golden --update-golden`` rewrites tests/golden/agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import unified_diff
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gpud
from tests.e2e.program import Program, as_nobody, cuda, nvml, only, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(600)
HERE = Path(__file__).parent
GPU = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
NEWEST_S = 1_800_003_600
"""The end of history.sql, a whole hour."""
FIXED = {"schema_version", "level", "index", "gpu", "version"}
"""Fields whose numbers are no measurements."""
MACHINE = {"clocksource", "python", "numpy", "ptx_sha256"}
"""Fields of which the machine decides what they hold."""
NOISY = {"peaks", "flags", "missing"}
"""Lists whose length depends on what else the machine does, and families that come of them."""
NOISY_FAMILIES = ("gpud_probe_latency_peak", "gpud_probe_flagged", "gpud_probe_missing")
UNORDERED = {"health", "sinks", "sources"}
"""Objects whose keys come in the order in which things happened."""
SETTLES_S, LEAST_S = 90.0, 15.0
"""For so long an output may differ: since the start, and since it was first produced."""
POWERSHELL = "mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
NOBODY = 65534
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PATHS = ("status", "probes", f"history?probe=launch&gpu={GPU}", "alerts?since=0", "events")
VERBS = (
    "status --json",
    "doctor --json",
    "probe --list --json",
    "probe cpu_call --json",
    "history --limit 12 --json",
    "history --limit 12 --csv",
    "alerts --json",
    "alerts --all --json",
    "baseline show --json",
    "version",
)
RUNNING = ("history export", "config show", "config check", "logs", "alerts test log")
STOPPED = ("status", "history", "alerts", "baseline show", "config check", "logs", "probe --list")
USAGE = (
    *(
        "",
        "nonsense",
        "status --nonsense",
        "probe nonsense",
        "probe --repeat 0",
        "history nonsense",
    ),
    *("history --since never", "alerts ack", "alerts ack nonsense", "alerts test nonsense"),
    *("baseline", "baseline accept nonsense", "gpus forget nonsense", "completion nonsense"),
)
DENIED = ("baseline accept --all", f"gpus forget {GPU}", "down", "status", "alerts")
REQUESTS = (
    *("GET /", "GET /metrics", "GET /-/healthy", "GET /-/ready", "GET /nonsense"),
    *("GET /runbooks/GpudDriverRegression", "GET /api/v1/openapi.json", "GET /api/v1/nonsense"),
    *("GET /api/v1/history", "GET /api/v1/events?since=never", "POST /metrics", "PUT /"),
    *("POST /api/v1/status", "DELETE /api/v1/alerts", "OPTIONS /", "HEAD /metrics"),
    *("GET /metrics Host=evil.example", "GET / Origin=http://evil.example"),
    "GET /api/v1/status Origin=http://evil.example",
    "GET /api/v1/status Sec-Fetch-Site=cross-site",
)


def normalised(value: Any, name: str = "") -> Any:
    """Leave out what differs from run to run, and elements of a list that are then as the last."""
    if name in MACHINE | NOISY:
        return "<machine>"
    if isinstance(value, dict):
        pairs = sorted(value.items()) if name in UNORDERED else value.items()
        return {words(key): normalised(one, key) for key, one in pairs}
    if isinstance(value, list):
        return [one for one, _ in groupby(normalised(one, name) for one in value)]
    if isinstance(value, str):
        return words(value)
    return value if value is None or isinstance(value, bool) or name in FIXED else "<number>"


def words(text: str) -> str:
    for pattern, placeholder in (
        (r"/tmp/gpud-e2e-\w+", "<home>"),
        (re.escape(gpud.__version__), "<version>"),
        (re.escape(os.uname().release), "<kernel>"),
        (r'python="[^"]+"', 'python="<version>"'),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (rf"\b{re.escape(os.uname().nodename)}\b", "<host>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
        (r"(?<!GPU-)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b[0-9a-f]{32}\b", "<id>"),
    ):
        text = re.sub(pattern, placeholder, text)
    return text


def document(text: str | bytes) -> str:
    return json.dumps(normalised(json.loads(text)), indent=1, ensure_ascii=False) + "\n"


def lines(text: str) -> str:
    """Normalise the text of metrics or a table: a number that ends a cell is a measurement."""
    return re.sub(
        r"(?<=[ ,])-?[\d.]+(e[-+]?\d+)?(?=$|,)", "<number>", words(text), flags=re.MULTILINE
    )


@dataclass
class Sinks:
    """The other ends of all six sinks, and what each received, in order."""

    home: Path
    posted: dict[str, list[Any]] = field(default_factory=lambda: {"/webhook": [], "/apprise": []})

    @property
    def inbox(self) -> Path:
        return self.home / "inbox"

    def settings(self, port: int) -> dict[str, Any]:
        self.inbox.mkdir()
        self.inbox.chmod(0o777)
        self.program("notify", f"cat >>{self.inbox}/command")
        self.program(f"sysroot/{POWERSHELL}", f"cat >>{self.inbox}/toast; printf shown")
        secrets = self.home / "etc/gpud/secrets.toml"
        secrets.parent.mkdir(parents=True)
        secrets.write_text(
            f'[alerts]\nwebhook_urls = ["http://127.0.0.1:{port}/webhook"]\n'
            f'apprise_urls = ["json://127.0.0.1:{port}/apprise"]\n'
        )
        secrets.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(secrets, 0, NOBODY)
        return {
            "command": [f"{self.home}/notify"],
            "toast": True,
            "group_wait_s": 0.0,
            "warm_up_s": 0.0,
            "repeat_interval_s": 2.0,
        }

    def program(self, name: str, script: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def received(self) -> dict[str, list[Any]]:
        log = self.home / "var/log/gpud/agent/agent.log"
        logged = [json.loads(line) for line in read(log)]
        return normalised(  # type: ignore[no-any-return]
            {
                "webhook": self.posted["/webhook"],
                "apprise": self.posted["/apprise"],
                "command": [json.loads(line) for line in read(self.inbox / "command")],
                "toast": [json.loads(b64decode(line)) for line in read(self.inbox / "toast")],
                "log": [
                    one for one in logged if one["event"] in {"alert_firing", "alert_resolved"}
                ],
            }
        )

    def when(self, count: int) -> None:
        """Wait until each sink has received so many different messages."""
        until(
            lambda: all(len(one) >= count for one in self.received().values()),
            f"{count} messages at every sink",
        )


def read(path: Path) -> list[str]:
    """Give the whole lines of a file that may not be there yet."""
    with contextlib.suppress(OSError):
        return path.read_text().rpartition("\n")[0].splitlines()
    return []


@contextlib.contextmanager
def listening(sinks: Sinks) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sinks.posted[self.path.rstrip("/")].append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *message: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Recorder:
    """Outputs by the name of their golden file."""

    update: bool
    until_s: float = field(default_factory=lambda: time.monotonic() + SETTLES_S)
    outputs: dict[str, str] = field(default_factory=dict)

    def record(self, name: str, produce: Callable[[], str]) -> None:
        """Produce an output until it is as agreed; what settles late may take its time."""
        path, previous = HERE / "agent" / name, ""
        deadline = max(self.until_s, time.monotonic() + LEAST_S)
        agreed = path.read_text() if path.exists() and not self.update else None
        while time.monotonic() < deadline:
            self.outputs[name] = produce()
            if self.update:
                path.write_text(self.outputs[name])
            if self.outputs[name] == (previous if agreed is None else agreed):
                return
            previous = self.outputs[name]
            time.sleep(1)  # a page is rendered once a second, a history read every few seconds


def history(home: Path) -> None:
    """Put the history in place, moved so that its last hour is the one that ended last."""
    shift_s = int(time.time()) // 3600 * 3600 - NEWEST_S
    moved = re.sub(
        r"\b1(799|800)\d{6}(?=\D)",
        lambda match: str(int(match[0]) + shift_s),
        (HERE / "history.sql").read_text(),
    )
    path = home / "var/lib/gpud/gpud.db"
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(moved)
    if os.geteuid() == 0:  # then the agent runs as nobody
        for each in (path, path.parent):
            os.chown(each, NOBODY, NOBODY)


def machine(home: Path) -> socket.socket:
    """Make the files of a WSL2 machine, and the socket that starts Windows programs."""
    for name, text in {
        "proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n",
        "proc/uptime": "90000.00 1.00\n",
        "proc/sys/fs/binfmt_misc/WSLInterop": "enabled\ninterpreter /init\n",
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "run/WSL/placeholder": "",
    }.items():
        path = home / "sysroot" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    path = home / "sysroot/run/WSL/8_interop"
    interop = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    interop.bind(str(path))
    path.chmod(0o666)
    interop.listen(4)
    return interop


def cli(
    gpud: Program, command: str, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, sys.executable, "-I", "-m", "gpud", "--home", str(gpud.home), *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
    )


def codes(gpud: Program, commands: tuple[str, ...], prefix: tuple[str, ...] = ()) -> str:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda one: cli(gpud, one, prefix).returncode, commands)
        return json.dumps(dict(zip(commands, found, strict=True)), indent=1) + "\n"


def output(gpud: Program, command: str) -> str:
    ran = cli(gpud, command)
    if command == "doctor --json":  # what is wrong with this machine is no matter of the format
        checks = [
            (one["name"], one["title"], list(one)) for one in json.loads(ran.stdout)["checks"]
        ]
        return json.dumps([list(json.loads(ran.stdout)), checks], indent=1) + "\n"
    text = document(ran.stdout) if command.endswith("--json") else lines(ran.stdout)
    return f"{text}exit code {ran.returncode}\n"


def answer(gpud: Program, request: str) -> dict[str, Any]:
    """Ask for "METHOD PATH HEADER=VALUE"; give the code and headers, a small body too."""
    method, path, *pairs = request.split(" ")
    headers = dict(pair.split("=", 1) for pair in pairs)
    asked = urllib.request.Request(
        f"http://127.0.0.1:{gpud.port}{path}", method=method, headers=headers
    )
    try:
        with urllib.request.urlopen(asked, timeout=20) as got:
            code, head, body = got.status, got.headers, got.read()
    except urllib.error.HTTPError as error:
        with error as got:
            code, head, body = got.code, got.headers, got.read()
    varying = {"date", "etag", "content-length", "last-modified"}
    found = {"code": str(code)} | {k: v for k, v in head.items() if k.lower() not in varying}
    if "allow" in found:
        found["allow"] = ", ".join(sorted(found["allow"].split(", ")))
    return found | ({"body": body.decode()} if len(body) < 300 else {})


def answers(gpud: Program) -> str:
    return document(json.dumps({one: answer(gpud, one) for one in REQUESTS}))


def description(gpud: Program) -> str:
    """Give the paths and the schemas with their fields, and which of them are required."""
    said = json.loads(gpud.get("/api/v1/openapi.json"))
    schemas = {
        name: {key: key in schema.get("required", ()) for key in schema.get("properties", ())}
        for name, schema in said["components"]["schemas"].items()
    }
    return json.dumps({"paths": list(said["paths"]), "schemas": schemas}, indent=1) + "\n"


def metrics(gpud: Program, accept: str = "text/plain") -> str:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{gpud.port}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(asked, timeout=20) as got:
        families = re.split(r"(?=^# HELP )", lines(got.read().decode()), flags=re.MULTILINE)
    return "".join(  # of a family, samples come in the order in which things happened
        line
        for one in families
        if not one.startswith(tuple(f"# HELP {name}" for name in NOISY_FAMILIES))
        for line in sorted(one.splitlines(keepends=True), key=sample)
    )


def sample(line: str) -> str:
    """Give what samples are sorted by; comments and what ends a document stay where they are."""
    return "" if line.startswith("#") else line


def scrapes(recorder: Recorder, gpud: Program, name: str) -> None:
    recorder.record(f"{name}.metrics.txt", lambda: metrics(gpud))
    recorder.record(f"{name}.openmetrics.txt", lambda: metrics(gpud, OPENMETRICS))


def problem(recorder: Recorder, gpud: Program) -> None:
    for path in PATHS:
        name = f"api-{path.partition('?')[0]}.json"
        recorder.record(name, lambda path=path: document(gpud.get(f"/api/v1/{path}")))  # type: ignore[misc]
    recorder.record("api-openapi.json", lambda: description(gpud))
    recorder.record("http.json", lambda: answers(gpud))
    recorder.record("root.json", lambda: document((gpud.run_dir / "root.json").read_text()))
    scrapes(recorder, gpud, "full")
    for verb in VERBS:
        name = "-".join(verb.replace("--", "").split()).removesuffix("-json")
        recorder.record(f"cli-{name}.txt", lambda verb=verb: output(gpud, verb))  # type: ignore[misc]
    recorder.record("codes-running.json", lambda: codes(gpud, RUNNING))
    recorder.record("codes-usage.json", lambda: codes(gpud, USAGE))
    daemon = tuple(word.replace("nobody", "daemon") for word in as_nobody(gpud.home))
    recorder.record("codes-denied.json", lambda: codes(gpud, DENIED, daemon))


def bare(recorder: Recorder) -> None:
    with program(cuda={}, nvml={}, probes=only("cpu_call")) as gpud, machine(gpud.home):
        gpud.sysroot = str(gpud.home / "sysroot")
        gpud.start()
        gpud.status_when(lambda d: d["counters"]["runs"], "a run")
        scrapes(recorder, gpud, "bare")
        recorder.record("bare-status.json", lambda: document(gpud.get("/api/v1/status")))


@pytest.fixture(scope="module")
def recorder(request: pytest.FixtureRequest) -> Recorder:
    made = Recorder(request.config.getoption("--update-golden"))
    with program() as gpud, machine(gpud.home):
        sinks = Sinks(gpud.home)
        history(gpud.home)
        gpud.sysroot = str(gpud.home / "sysroot")
        with listening(sinks) as port:
            gpud.settings = {
                "cuda": cuda(gpud.home),
                "nvml": nvml(gpud.home, "driver_version 576.02\n"),
                "probes": only("cpu_call", "launch"),
                "schedule": {
                    "telemetry_interval_s": 0.5,
                    "small_interval_s": 3600.0,
                    "large_interval_s": 3600.0,
                },
                "alerts": sinks.settings(port),
                "export": {"compat": ["dcgm"]},
            }
            gpud.start()
            if os.environ.get("DBG"):
                time.sleep(8)
                print(gpud.logs()[-6000:])
                print(json.dumps(gpud.status())[:200000])
                raise SystemExit
            notices = [notice(gpud, lambda line: line)]
            sinks.when(1)
            assert cli(gpud, "baseline accept launch roundtrip").returncode == 0
            sinks.when(2)
            alert = json.loads(gpud.get("/api/v1/alerts"))["alerts"][0]["fingerprint"]
            assert cli(gpud, f"alerts ack {alert}").returncode == 0
            notices.append(notice(gpud, lambda line: not line))
            problem(made, gpud)
            assert cli(gpud, "baseline accept --all").returncode == 0
            sinks.when(3)
            notices.append(notice(gpud, lambda line: line))
            made.record(
                "sinks.json",
                lambda: document(json.dumps({**sinks.received(), "notice": notices})),
            )
            made.record("codes-well.json", lambda: codes(gpud, ("status", "alerts")))
            made.record("cli-alerts-all-ended.txt", lambda: output(gpud, "alerts --all --json"))
            gpud.stop()
        made.record("codes-stopped.json", lambda: codes(gpud, STOPPED))
        made.record("cli-status-stopped.txt", lambda: output(gpud, "status --json"))
    bare(made)
    return made


def notice(gpud: Program, good: Callable[[str], object]) -> str:
    """Wait for a line, or for none, that the next shell shows."""
    path = gpud.run_dir / "notice"
    until(lambda: path.exists() and good(path.read_text().strip()), "the notice")
    return path.read_text()


def test_outputs_are_those_that_have_a_golden_file(recorder: Recorder) -> None:
    assert sorted(recorder.outputs) == sorted(path.name for path in (HERE / "agent").iterdir())


@pytest.mark.parametrize("name", sorted(path.name for path in (HERE / "agent").iterdir()))
def test_output_is_the_agreed_one(recorder: Recorder, name: str) -> None:
    agreed = (HERE / "agent" / name).read_text().splitlines()
    different = unified_diff(agreed, recorder.outputs[name].splitlines(), "agreed", "now", n=3)
    assert "\n".join(different) == ""
