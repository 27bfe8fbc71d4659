"""Debian's Alertmanager, and a webhook that keeps what it is sent."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.e2e.program import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Webhook:
    """Takes POSTs on a port of its own; ``next`` waits for what comes."""

    def __init__(self) -> None:
        self.messages = queue.Queue[dict[str, Any]]()
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                messages.put(json.loads(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def next(self, within_s: float) -> dict[str, Any]:
        """The next message, in the order in which they came."""
        try:
            return self.messages.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"nothing was sent for {within_s:g} s") from None

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(timeout=10)
        self._server.server_close()


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    try:
        yield made
    finally:
        made.close()


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
        found: list[dict[str, Any]] = json.load(answer)
        return found
    return None


def post(port: int, *labels: dict[str, str]) -> None:
    """Fire these alerts, as Prometheus would."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts",
        data=json.dumps([{"labels": each} for each in labels]).encode(),
        headers={"content-type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=5).close()
