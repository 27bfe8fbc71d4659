"""Debian's Prometheus, scraping one gpud and asked over its API."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.e2e.program import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextlib.contextmanager
def prometheus(
    target: int,
    folder: Path,
    rules: str = "",
    alertmanager: int | None = None,
    *,
    others: Mapping[str, int] | None = None,
    job: str = "",
) -> Iterator[int]:
    """Scrape the port ``target`` every second; give Prometheus's own port.

    ``rules`` is a pattern of rule files, evaluated every second; ``alertmanager`` a port;
    ``others`` are more ports to scrape, by the name that the instance shall have; ``job`` is YAML
    for the job, such as "scheme: https".
    """
    port = free_port()
    config = (
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        "scrape_configs:\n"
        "- {job_name: gpud, "
        f"{job + ', ' if job else ''}"
        f"static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    for instance, port_of_it in (others or {}).items():
        config = config.rstrip().removesuffix("]}") + (
            f", {{targets: ['127.0.0.1:{port_of_it}'], labels: {{instance: {instance}}}}}]}}\n"
        )
    if rules:
        config += f"rule_files: ['{rules}']\n"
    if alertmanager is not None:
        report = f"[{{targets: ['127.0.0.1:{alertmanager}']}}]"
        config += f"alerting: {{alertmanagers: [{{static_configs: {report}}}]}}\n"
    (folder / "prometheus.yml").write_text(config)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def api(port: int, path: str, **query: str) -> Any:
    """What the API says, None while it does not answer."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]
    return None


def number(port: int, expression: str) -> float:
    """The first value of an expression, 0 where there is none."""
    result = api(port, "query", query=expression)
    return float(result["result"][0]["value"][1]) if result and result["result"] else 0.0
