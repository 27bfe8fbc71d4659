"""Debian's Alertmanager, run alone and asked over its API."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.e2e.program import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def alertmanager(config: str, folder: Path) -> Iterator[int]:
    """Run Alertmanager alone, without a cluster, under ``config``; give its port."""
    port = free_port()
    (folder / "alertmanager.yml").write_text(config)
    with (folder / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus-alertmanager",
                f"--config.file={folder}/alertmanager.yml",
                f"--storage.path={folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: alerts(port) is not None, "Alertmanager answers")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def alerts(port: int) -> list[dict[str, Any]] | None:
    """What it knows of, None while it does not answer."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts", timeout=5) as answer,
    ):
        result: list[dict[str, Any]] = json.load(answer)
        return result
    return None


def post(port: int, *labels: dict[str, str]) -> None:
    """Fire these alerts, as Prometheus would."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts",
        data=json.dumps([{"labels": each} for each in labels]).encode(),
        headers={"content-type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=5).close()
