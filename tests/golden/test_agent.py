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
import tempfile
import threading
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gpud
from tests.e2e.program import Program, as_nobody, cuda, nvml, only, program
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent runs as nobody, as root starts it"),
]
FOLDER = Path(__file__).parent / "agent"
HISTORY = Path(__file__).parent / "history.sql"
NEWEST_S = 1_800_003_600
"""The end of the history, a whole hour."""
GPU = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000000"
NOBODY = 65534
POWERSHELL = "sysroot/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
SETTLES_S, LEAST_S = LIMIT_S, 30.0
"""For so long an output may differ: since the start, and since it was first produced."""

FIXED = {"schema_version", "level", "index", "gpu", "version"}
"""Fields whose numbers are no measurements."""
MACHINE = {"clocksource", "python", "numpy", "ptx_sha256", "peaks", "flags", "missing"}
MACHINE |= {"last_judged_s"}
"""Fields that depend on the machine, or on what else it does; ``bound.*`` do so, too."""
VERSIONS = {"driver_version", "cuda_version", "nvml_version"}
"""Of the driver: the first run on the CPU may come before telemetry has asked for them."""
LATE = {"hung"}
"""Reasons that a busy machine gives until a process of its own has begun."""
NOISY = ("gpud_probe_latency_peak", "gpud_probe_flagged")
"""Families that are there on some runs only."""
UNORDERED = {"health", "sinks", "sources"}
"""Objects whose keys come in the order in which things happened."""
PLACEHOLDERS = {
    rf"{re.escape(tempfile.gettempdir())}/gpud-e2e-\w+": "<home>",
    re.escape(sys.prefix): "<venv>",
    re.escape(gpud.__version__): "<version>",
    re.escape(os.uname().release): "<kernel>",
    r'python="[^"]+"': 'python="<version>"',
    r"127\.0\.0\.1:\d+": "127.0.0.1:<port>",
    rf"\b{re.escape(os.uname().nodename)}\b": "<host>",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)": "<time>",
    r"(?<!GPU-)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "<uuid>",
    r"\b[0-9a-f]{32}\b": "<id>",
}

PATHS = ("status", "probes", f"history?probe=launch&gpu={GPU}", "alerts?since=0", "events")
VERBS = (
    *("status --json", "doctor --json", "probe --list --json", "probe cpu_call --json"),
    *("history --limit 8 --json", "history --limit 8 --csv", "alerts --json"),
    *("alerts --all --json", "baseline show --json", "version"),
)
RUNNING = ("history export", "config show", "config check", "logs", "alerts test log")
STOPPED = ("status", "history", "alerts", "baseline show", "config check", "logs", "probe --list")
USAGE = (
    *("", "nonsense", "status --nonsense", "probe nonsense", "probe --repeat 0"),
    *("history nonsense", "history --since never", "alerts ack", "alerts ack nonsense"),
    *("alerts test nonsense", "config", "baseline accept nonsense", "gpus forget nonsense"),
    "completion nonsense",
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
    """Replace what differs from run to run; of equal elements of a list in a row, keep the first.

    Keys, their order, types, units and words stay.
    """
    if name in MACHINE or name.startswith("bound."):
        return "<machine>"
    if isinstance(value, dict):
        pairs = sorted(value.items()) if name in UNORDERED else value.items()
        late = LATE
        if name == "conditions" and "library" not in value:  # of a run on the CPU
            late = LATE | VERSIONS
        return {words(key): normalised(each, key) for key, each in pairs if key not in late}
    if isinstance(value, list):
        if name == "recent":
            value = value[:1]  # a busy machine marks runs, and marked runs have no series
        return [each for each, _ in groupby(normalised(each, name) for each in value)]
    if isinstance(value, str):
        return words(value)
    return value if value is None or isinstance(value, bool) or name in FIXED else "<number>"


def words(text: str) -> str:
    for pattern, placeholder in PLACEHOLDERS.items():
        text = re.sub(pattern, placeholder, text)
    return text


def document(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        value = json.loads(value)
    return json.dumps(normalised(value), indent=1, ensure_ascii=False) + "\n"


def table(text: str) -> str:
    """Normalise metrics or CSV: a number that ends a line or fills a cell is a measurement."""
    number = r"(?m)(?<=[ ,])-?[\d.]+(e[-+]?\d+)?(?=$|,)"
    return re.sub(number, "<number>", words(text))


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def read(path: Path) -> list[str]:
    """Read the whole lines of a file that may not exist yet."""
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


@dataclass
class Sinks:
    """The other ends of all six sinks, and what each received, in order."""

    home: Path
    posted: dict[str, list[Any]] = field(default_factory=lambda: {"/webhook": [], "/apprise": []})
    notices: list[str] = field(default_factory=list)

    def settings(self, port: int) -> dict[str, Any]:
        inbox, secrets = self.home / "inbox", self.home / "etc/gpud/secrets.toml"
        inbox.mkdir()
        inbox.chmod(0o777)
        write(self.home / "notify", f"#!/bin/sh\ncat >>{inbox}/command\n", 0o755)
        write(self.home / POWERSHELL, f"#!/bin/sh\ncat >>{inbox}/toast; printf shown\n", 0o755)
        urls = {"webhook_urls": f"http://127.0.0.1:{port}/webhook"}
        urls |= {"apprise_urls": f"json://127.0.0.1:{port}/apprise"}
        lines = [f'{key} = ["{url}"]' for key, url in urls.items()]
        write(secrets, "\n".join(["[alerts]", *lines]), 0o640)
        os.chown(secrets, 0, NOBODY)
        soon = {"group_wait_s": 0.0, "warm_up_s": 0.0, "repeat_interval_s": 2.0}
        return {"command": [f"{self.home}/notify"], "toast": True, **soon}

    def received(self) -> dict[str, list[Any]]:
        logged = map(json.loads, read(self.home / "var/log/gpud/agent/agent.log"))
        messages = {
            "webhook": self.posted["/webhook"],
            "apprise": self.posted["/apprise"],
            "command": [json.loads(line) for line in read(self.home / "inbox/command")],
            "toast": [json.loads(b64decode(line)) for line in read(self.home / "inbox/toast")],
            "log": [each for each in logged if re.match("alert_(firing|resolved)", each["event"])],
        }
        return {sink: normalised(each) for sink, each in messages.items()}

    def when(self, count: int) -> None:
        """Wait until each sink has received so many different messages."""
        what = f"{count} messages at every sink"
        until(lambda: all(len(each) >= count for each in self.received().values()), what)

    def notice(self, *, empty: bool = False) -> None:
        """Wait for the line that the next shell shows, or until there is none."""
        path = self.home / "run/gpud/notice"
        until(lambda: path.exists() and bool(path.read_text()) is not empty, "the notice")
        self.notices.append(path.read_text())


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
        path, previous = FOLDER / name, ""
        deadline = max(self.until_s, time.monotonic() + LEAST_S)
        while time.monotonic() < deadline:
            self.outputs[name] = produce()
            agreed = previous if self.update or not path.exists() else path.read_text()
            if self.outputs[name] == agreed:
                break
            previous = self.outputs[name]
            time.sleep(1)  # a page is rendered once a second, a history read every few seconds
        if self.update:
            path.write_text(self.outputs[name])


def history(home: Path) -> None:
    """Put the history in place, moved so that its last hour is the one that ended last."""
    shift_s = int(time.time()) // 3600 * 3600 - NEWEST_S
    moved = re.sub(
        r"\b1(799|800)\d{6}(?=\D)", lambda at: str(int(at[0]) + shift_s), HISTORY.read_text()
    )
    path = home / "var/lib/gpud/gpud.db"
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(moved)
    for each in (path, path.parent):
        os.chown(each, NOBODY, NOBODY)


@contextlib.contextmanager
def machine(**settings: dict[str, Any]) -> Iterator[Program]:
    """A gpud to start on a WSL2 machine whose Windows programs can be started."""
    with program(**settings) as made, socket.socket(socket.AF_UNIX) as interop:
        root = made.home / "sysroot"
        made.sysroot = str(root)
        write(root / "proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
        write(root / "proc/uptime", "90000.00 1.00\n")
        write(root / "proc/sys/fs/binfmt_misc/WSLInterop", "enabled\ninterpreter /init\n")
        write(root / "etc/os-release", 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
        path = root / "run/WSL/8_interop"
        path.parent.mkdir(parents=True)
        interop.bind(str(path))
        interop.listen(4)
        path.chmod(0o666)
        yield made


def cli(
    gpud: Program, command: str, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    line = [*prefix, sys.executable, "-I", "-m", "gpud", "--home", str(gpud.home), *command.split()]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd="/")


def codes(gpud: Program, commands: tuple[str, ...], prefix: Sequence[str] = ()) -> str:
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda command: cli(gpud, command, prefix).returncode, commands)
        return json.dumps(dict(zip(commands, results, strict=True)), indent=1) + "\n"


def output(gpud: Program, command: str) -> str:
    result = cli(gpud, command)
    if command == "doctor --json":  # what is wrong with this machine does not belong here
        report = json.loads(result.stdout)
        checks = [f"{each['name']}: {each['title']}: {list(each)}" for each in report["checks"]]
        return json.dumps({"keys": list(report), "checks": checks}, indent=1) + "\n"
    text = document(result.stdout) if command.endswith("--json") else table(result.stdout)
    return f"{text}exit code {result.returncode}\n"


def ask(gpud: Program, request: str) -> tuple[int, dict[str, str], str]:
    """Send "METHOD PATH HEADER=VALUE"; return the code, the headers and the body."""
    method, path, *pairs = request.split(" ")
    with contextlib.closing(HTTPConnection("127.0.0.1", gpud.port, timeout=LIMIT_S)) as connection:
        connection.request(method, path, headers=dict(pair.split("=", 1) for pair in pairs))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def answers(gpud: Program) -> str:
    """Return codes, headers and short bodies."""
    asked: dict[str, Any] = {}
    for request in REQUESTS:
        code, headers, body = ask(gpud, request)
        for name in ("date", "etag", "content-length"):
            headers.pop(name, None)
        if "allow" in headers:
            headers["allow"] = ", ".join(sorted(headers["allow"].split(", ")))
        asked[request] = {"code": str(code), **headers, "body": body if len(body) < 300 else "..."}
    return document(asked)


def description(gpud: Program) -> str:
    """Return the paths and the schemas: their fields, and which of them are required."""
    described = json.loads(gpud.get("/api/v1/openapi.json"))
    schemas = {
        name: {key: key in schema.get("required", ()) for key in schema.get("properties", ())}
        for name, schema in described["components"]["schemas"].items()
    }
    return json.dumps({"paths": list(described["paths"]), "schemas": schemas}, indent=1) + "\n"


def metrics(gpud: Program, accept: str) -> str:
    """Scrape; the samples of a family come in the order in which things happened."""
    families = re.split(r"(?m)(?=^# HELP )", table(ask(gpud, f"GET /metrics Accept={accept}")[2]))
    return "".join(
        line
        for family in families
        if not family.startswith(tuple(f"# HELP {name}" for name in NOISY))
        for line in sorted(
            family.splitlines(keepends=True), key=lambda line: line * (line[0] != "#")
        )
        if not any(f'reason="{reason}"' in line for reason in LATE)
    )


def scrapes(recorder: Recorder, gpud: Program, name: str) -> None:
    recorder.record(f"{name}.metrics.txt", partial(metrics, gpud, "text/plain"))
    openmetrics = "application/openmetrics-text;version=1.0.0"
    recorder.record(f"{name}.openmetrics.txt", partial(metrics, gpud, openmetrics))


def problem(recorder: Recorder, gpud: Program) -> None:
    """Record all that is shown while an alert fires."""
    record = recorder.record
    for path in PATHS:
        name = f"api-{path.partition('?')[0]}.json"
        record(name, lambda path=path: document(gpud.get(f"/api/v1/{path}")))  # type: ignore[misc]
    record("api-openapi.json", partial(description, gpud))
    record("http.json", partial(answers, gpud))
    record("root.json", lambda: document((gpud.run_dir / "root.json").read_text()))
    scrapes(recorder, gpud, "full")
    for verb in VERBS:
        name = "-".join(verb.replace("--", "").split()).removesuffix("-json")
        record(f"cli-{name}.txt", partial(output, gpud, verb))
    record("codes-running.json", partial(codes, gpud, RUNNING))
    record("codes-usage.json", partial(codes, gpud, USAGE))
    daemon = [word.replace("nobody", "daemon") for word in as_nobody(gpud.home)]
    record("codes-denied.json", partial(codes, gpud, DENIED, daemon))


def settled(now: dict[str, Any]) -> bool:
    """Say whether every part has told how it is, and a run is counted in the store."""
    parts = {"cuda", "devices", "nvml", "probes", "root", "store"}
    hung = any(part["reason"] in LATE for part in now["health"].values())
    return bool(
        parts <= now["health"].keys() and not hung and now["store"] and now["store"]["runs"]
    )


@pytest.fixture(scope="module")
def recorder(request: pytest.FixtureRequest) -> Recorder:
    made = Recorder(request.config.getoption("--update-golden"))
    with machine(probes=only("cpu_call", "launch"), export={"compat": ["dcgm"]}) as gpud:
        sinks = Sinks(gpud.home)
        history(gpud.home)
        with listening(sinks) as port:
            gpud.settings |= {
                "cuda": cuda(gpud.home),
                "nvml": nvml(gpud.home, "driver_version 576.02\n"),
                "schedule": {"small_interval_s": 3600.0, "telemetry_interval_s": 0.5},
                "alerts": sinks.settings(port),
            }
            gpud.start()
            sinks.notice()
            sinks.when(1)
            assert cli(gpud, "baseline accept --probe launch --mode roundtrip").returncode == 0
            sinks.when(2)
            [alert] = json.loads(gpud.get("/api/v1/alerts"))["alerts"]
            assert cli(gpud, f"alerts ack {alert['fingerprint']}").returncode == 0
            sinks.notice(empty=True)
            gpud.status_when(settled, "all components and the size of the store")
            problem(made, gpud)
            assert cli(gpud, "baseline accept --all").returncode == 0
            sinks.notice()
            made.record(
                "sinks.json", lambda: document({**sinks.received(), "notice": sinks.notices})
            )
            made.record("codes-well.json", partial(codes, gpud, ("status", "alerts")))
            made.record("cli-alerts-all-ended.txt", partial(output, gpud, "alerts --all --json"))
            gpud.stop()
        made.record("codes-stopped.json", partial(codes, gpud, STOPPED))
        made.record("cli-status-stopped.txt", partial(output, gpud, "status --json"))
    with machine(probes=only("cpu_call"), cuda={}, nvml={}) as gpud:
        gpud.start()
        gpud.status_when(settled, "all components and the size of the store")
        scrapes(made, gpud, "bare")
        made.record("bare-status.json", lambda: document(gpud.get("/api/v1/status")))
    return made


def test_outputs_are_those_that_have_a_golden_file(recorder: Recorder) -> None:
    assert sorted(recorder.outputs) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_output_is_the_agreed_one(recorder: Recorder, name: str) -> None:
    agreed = (FOLDER / name).read_text().splitlines()
    different = unified_diff(agreed, recorder.outputs[name].splitlines(), "agreed", "now", n=3)
    assert "\n".join(different) == ""
