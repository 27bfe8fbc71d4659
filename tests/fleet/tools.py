"""The programs of deploy/fleet, under its configurations, on the loopback address.

What is changed of a configuration is here: addresses, intervals, and TLS with its password, which
another test has. The rules are those of deploy/prometheus, hurried by deploy/fleet/rules.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tests.e2e.program import free_port
from tests.e2e.scraping import Tool, prometheus_of
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "deploy/fleet"
Hurry: TypeAlias = tuple[int, int]
"""What every wait of the rules is divided by, and the least of an alert in seconds: ten scrapes,
because some that a busy machine misses are no reason."""


@dataclass(slots=True)
class Fleet:
    """A made-up fleet in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def tell(self, **command: object) -> dict[tuple[str, str], int]:
        """Let something happen to machines; give how often which was served to whom."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(command), file=self.process.stdin, flush=True)
        served: dict[str, int] = json.loads(self.process.stdout.readline())
        return {(key.split()[0], key.split()[1]): count for key, count in served.items()}

    def url(self, part: int = 0, of: int = 1) -> str:
        """Where the list of every ``of``-th machine is."""
        return f"http://127.0.0.1:{self.port}/targets.json?of={of}&part={part}"

    def names(self, **labels: str) -> list[str]:
        """Those on the list that have these labels."""
        with urllib.request.urlopen(self.url(), timeout=LIMIT_S) as answer:
            listed = json.load(answer)
        return [
            one["labels"]["instance"] for one in listed if labels.items() <= one["labels"].items()
        ]


@contextlib.contextmanager
def fleet(hosts: int, round_s: float) -> Iterator[Fleet]:
    """Run ``hosts`` machines, each of which takes its turn every ``round_s``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet", f"--hosts={hosts}", f"--round={round_s}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        yield Fleet(process, json.loads(process.stdout.readline())["port"])
    finally:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.wait(timeout=LIMIT_S)


def rules(folder: Path, hurry: Hurry, *more: str) -> str:
    """Write the rules, hurried, and give their pattern."""
    script = FOLDER / "rules.py"
    subprocess.run(
        [sys.executable, script, f"--hurry={hurry[0]}", f"--wait={hurry[1]}", *more, folder],
        check=True,
    )
    return f"{folder}/*.yml"


def edited(text: str, changes: Mapping[str, str]) -> str:
    """Change a configuration; every change must find its place, once."""
    for pattern, put in changes.items():
        literal = put.replace("\\", r"\\")
        text, count = re.subn(pattern, literal, text, flags=re.MULTILINE | re.DOTALL)
        assert count == 1, (pattern, count)
    return text


def central(folder: Path, hurry: Hurry, changes: Mapping[str, str]) -> Tool:
    """Prometheus as in scrape/prometheus.yml, which judges more often and tells nobody."""
    folder.mkdir()
    always = {
        r"evaluation_interval: 30s": "evaluation_interval: 3s",
        r"^alerting:.*?(?=^storage:)": "",
        r"- rules/\*\.yml": f"- {rules(folder / 'rules', hurry)}",
    }
    text = edited((FOLDER / "scrape/prometheus.yml").read_text(), {**always, **changes})
    (folder / "prometheus.yml").write_text(text)
    return prometheus_of(folder, "--web.enable-remote-write-receiver")


def scraper(
    folder: Path, url: str, files: str = "none.json", *, interval_s: float, hurry: Hurry
) -> Tool:
    """One that scrapes what ``url`` and ``files`` list."""
    changes = {
        r"scrape_interval: 15s": f"scrape_interval: {interval_s:g}s",
        r"files: \[targets/\*\.json\]": f"files: [{files}]",
        r"http://127.0.0.1:8000/gpud.json": url,
        r"refresh_interval: 1m": "refresh_interval: 5s",
        r"    scheme: https.*": "",
    }
    return central(folder, hurry, changes)


def receiver(folder: Path, *, hurry: Hurry) -> Tool:
    """One without anything to scrape."""
    return central(folder, hurry, {r"^scrape_configs:.*": ""})


def agent(folder: Path, url: str, store: str, *, interval_s: float) -> Tool:
    """Prometheus as in push/prometheus.yml, for all of ``url``'s machines at once."""
    folder.mkdir()
    text = edited(
        (FOLDER / "push/prometheus.yml").read_text(),
        {
            r"scrape_interval: 30s": f"scrape_interval: {interval_s:g}s",
            r"    file_sd_configs:.*?(?=^remote_write:)": (
                f"    http_sd_configs: [{{url: '{url}', refresh_interval: 5s}}]\n"
            ),
            r"https://metrics.example/api/v1/write": store,
            r"    basic_auth:.*?(?=    queue_config:)": "",
            r"max_shards: 2": "max_shards: 20",
            r"max_backoff: 1m": "max_backoff: 1s",
        },
    )
    (folder / "prometheus.yml").write_text(text)
    return prometheus_of(folder, "--enable-feature=agent")


def vmagent(folder: Path, url: str, store: str, *, interval_s: float) -> Tool:
    """Run vmagent as in push/start and push/vmagent.yml, for all of ``url``'s machines at once."""
    folder.mkdir()
    text = edited(
        (FOLDER / "push/vmagent.yml").read_text(),
        {
            r"scrape_interval: 30s": f"scrape_interval: {interval_s:g}s",
            r"    file_sd_configs:.*": f"    http_sd_configs: [{{url: '{url}'}}]\n",
        },
    )
    (folder / "vmagent.yml").write_text(text)
    port = free_port()
    command = [
        "vmagent",
        f"-promscrape.config={folder}/vmagent.yml",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-remoteWrite.url={store}",
        f"-remoteWrite.tmpDataPath={folder}/buffer",
        "-remoteWrite.maxDiskUsagePerURL=1GB",
        "-promscrape.httpSDCheckInterval=1s",
    ]
    return Tool(command, port, folder / "log")


def victoria(folder: Path) -> Tool:
    """VictoriaMetrics, in which what arrives is seen at once."""
    folder.mkdir()
    port = free_port()
    command = [
        "victoria-metrics",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-storageDataPath={folder}/data",
        "-search.latencyOffset=1s",
        "-retentionPeriod=15d",
    ]
    return Tool(command, port, folder / "log")


def vmalert(folder: Path, store: Tool, told: str, *, hurry: Hurry) -> Tool:
    """Evaluate the rules over ``store``, write the results there, and tell the address ``told``."""
    folder.mkdir()
    port = free_port()
    command = [
        "vmalert",
        f"-rule={rules(folder / 'rules', hurry, '--no-keep-firing')}",
        f"-datasource.url=http://127.0.0.1:{store.port}",
        f"-remoteWrite.url=http://127.0.0.1:{store.port}",
        f"-remoteRead.url=http://127.0.0.1:{store.port}",
        f"-notifier.url={told}",
        "-evaluationInterval=3s",
        f"-httpListenAddr=127.0.0.1:{port}",
    ]
    return Tool(command, port, folder / "log")


def probes(tool: Tool) -> set[tuple[str, str, str]]:
    """Which model is said to be slower under which driver now, and by which probe."""
    return {
        (one["labels"]["name"], one["labels"]["driver_version"], one["labels"]["probe"])
        for one in tool.alerts()
        if one["labels"]["alertname"] == "GpudDriverSlowerThanBest" and one["state"] == "firing"
    }


def fired(store: Tool) -> set[tuple[str, str, str]]:
    """Every alert that has ever fired by what ``store`` keeps: its name, the model, the driver."""
    found = store.values('count_over_time(ALERTS{alertstate="firing"}[1h])')
    return {
        (one["alertname"], one.get("name", ""), one.get("driver_version", "")) for one, _ in found
    }
