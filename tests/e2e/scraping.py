"""Debian's Prometheus and Alertmanager, and other programs with a port, asked over their APIs."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.program import free_port
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANSWER_S = 30
"""For one answer; who waits for something asks again."""


@dataclass(slots=True)
class Tool:
    """One program with a port, which can be killed and started again on the same data."""

    command: list[str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until(self.answers, f"{self.command[0]} answers, see {self.log}")

    def answers(self) -> bool:
        """Say whether its listener does."""
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        path = "-/ready" if self.command[0].startswith("prometheus") else "health"
        with contextlib.suppress(OSError), _opened(self.port, path) as answer:
            return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        """End it as its init script would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        self.process.wait(timeout=LIMIT_S)  # an agent waits a minute for its store

    def api(self, path: str, **query: str) -> Any:
        return api(self.port, path, **query)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def cost(self) -> tuple[float, float]:
        """Give CPU seconds since its start, and resident MB now."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+)", status)
        assert resident is not None
        return (int(stat[11]) + int(stat[12])) / 100, int(resident[1]) / 1e3

    def values(self, expression: str, **query: str) -> list[tuple[dict[str, str], float]]:
        """Each series of an instant query, with its labels."""
        found = self.api("query", query=expression, **query)
        return [(one["metric"], float(one["value"][1])) for one in found["result"]] if found else []

    def alerts(self) -> list[dict[str, Any]]:
        """All that fire or wait to, as the rules' process knows them."""
        found = self.api("alerts")
        return list(found["alerts"] or ()) if found else []

    def known(self) -> int:
        """How many machines it has a fresh scrape of."""
        return len(self.values('gpud_build_info{job="gpud"}'))

    def knows(self, hosts: int) -> bool:
        """Say whether these are all."""
        return self.known() == hosts

    def ill(self) -> list[str]:
        """What went wrong with a rule when it was last evaluated."""
        found = self.api("rules")
        return [
            f"{rule['name']}: {rule['lastError']}"
            for group in (found or {"groups": []})["groups"]
            for rule in group["rules"]
            if rule.get("lastError")
        ]


@contextlib.contextmanager
def running(*tools: Tool) -> Iterator[None]:
    """Start these in their order, and end them in the other."""
    with contextlib.ExitStack() as stack:
        for tool in tools:
            stack.callback(tool.stop)
            tool.start()
        yield


@contextlib.contextmanager
def prometheus(
    target: int,
    folder: Path,
    rules: str = "",
    *,
    others: Mapping[str, int] | None = None,
    job: str = "",
) -> Iterator[int]:
    """Scrape the port ``target`` every second; give Prometheus's own port.

    ``rules`` is a pattern of rule files, evaluated every second; ``others`` are more ports to
    scrape, by the name that the instance shall have; ``job`` is YAML for the job, such as
    "scheme: https".
    """
    targets = [f"{{targets: ['127.0.0.1:{target}']}}"]
    for instance, port_of_it in (others or {}).items():
        labels = f"labels: {{instance: {instance}}}"
        targets.append(f"{{targets: ['127.0.0.1:{port_of_it}'], {labels}}}")
    config = (
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"scrape_configs:\n- {{job_name: gpud, {job + ', ' if job else ''}"
        f"static_configs: [{', '.join(targets)}]}}\n"
    )
    if rules:
        config += f"rule_files: ['{rules}']\n"
    (folder / "prometheus.yml").write_text(config)
    tool = prometheus_of(folder)
    with running(tool):
        yield tool.port


def prometheus_of(folder: Path, *flags: str) -> Tool:
    """Give a Prometheus with the ``prometheus.yml`` of a folder, and its data there."""
    port = free_port()
    stored = "agent" if "--enable-feature=agent" in flags else "tsdb"
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.{stored}.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    ]
    return Tool(command, port, folder / "log")


@contextlib.contextmanager
def alertmanager(config: str, folder: Path) -> Iterator[int]:
    """Run Alertmanager alone, without a cluster, under ``config``; give its port."""
    port = free_port()
    (folder / "alertmanager.yml").write_text(config)
    command = [
        "prometheus-alertmanager",
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}/alertmanager",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with running(Tool(command, port, folder / "alertmanager.log")):
        yield port


def alerts(port: int) -> list[dict[str, Any]]:
    """What an Alertmanager knows of."""
    with _opened(port, "api/v2/alerts") as answer:
        result: list[dict[str, Any]] = json.load(answer)
        return result


def post(port: int, alerts: list[dict[str, Any]]) -> None:
    """Give alerts to an Alertmanager, as Prometheus does."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts",
        json.dumps(alerts).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=ANSWER_S).close()


def api(port: int, path: str, **query: str) -> Any:
    """What the API of a Prometheus says, None while it does not answer."""
    path = f"api/v1/{path}?{urllib.parse.urlencode(query)}"
    with contextlib.suppress(OSError), _opened(port, path) as answer:
        return json.load(answer)["data"]
    return None


def number(port: int, expression: str) -> float:
    """The first value of an expression, 0 where there is none."""
    result = api(port, "query", query=expression)
    return float(result["result"][0]["value"][1]) if result and result["result"] else 0.0


def _opened(port: int, path: str) -> Any:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=ANSWER_S)
