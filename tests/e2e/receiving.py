"""A webhook's other end: what arrived, in order; it may also be told to be of no use."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Received:
    """Messages in Alertmanager's shape. While ``useless`` is set, a request is never answered."""

    url: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    useless: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def told(self, status: str, name: str | None = None) -> list[dict[str, Any]]:
        """Every alert of every message so far that is ``firing`` or ``resolved``."""
        return [
            alert
            for message in list(self.messages)
            for alert in message["alerts"]
            if alert["status"] == status and name in (None, alert["labels"]["alertname"])
        ]


@contextlib.contextmanager
def receiver() -> Iterator[Received]:
    """Listen on the loopback address until the block ends."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.asked += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if received.useless.is_set():
                received.ended.wait()
                return
            received.messages.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *said: object) -> None:
            """Say nothing: the tests look at what arrived."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield received
    finally:
        received.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
