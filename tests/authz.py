"""An authorization plugin of Docker: while it gives no answer, its dockerd is silent and idle."""

from __future__ import annotations

import contextlib
import itertools
import json
import socketserver
import tarfile
import threading
import uuid
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dockerd import PrivateDockerd

FITS_NO_BUFFER = 1 << 20
FOLDER = Path("/run/docker/plugins")
"""Where dockerd looks for plugins, whatever its own roots are."""


class Plugin:
    """A plugin that allows everything; ``silence()`` and ``speak()`` say when it answers."""

    def __init__(self) -> None:
        self.name = f"gpud-test-{uuid.uuid4().hex[:12]}"
        self._speaks = threading.Event()
        self._speaks.set()

    @property
    def flag(self) -> str:
        return f"--authorization-plugin={self.name}"

    def silence(self) -> None:
        self._speaks.clear()

    def speak(self) -> None:
        self._speaks.set()

    def answer(self, path: str) -> bytes:
        if path == "/Plugin.Activate":
            return json.dumps({"Implements": ["authz"]}).encode()
        self._speaks.wait()
        return json.dumps({"Allow": True}).encode()


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Pass over a dockerd that was killed while it waited."""


@contextlib.contextmanager
def plugin() -> Iterator[Plugin]:
    made = Plugin()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = made.answer(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{made.name}.sock"
    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            made.speak()
            server.shutdown()
            path.unlink()


@contextlib.contextmanager
def importing(dockerd: PrivateDockerd, file_bytes: int = 0) -> Iterator[None]:
    """Have dockerd unpack an archive of small files that does not end."""
    begun, over = threading.Event(), threading.Event()

    def file(name: str) -> bytes:
        entry = tarfile.TarInfo(name)
        entry.size = file_bytes
        return entry.tobuf() + bytes(file_bytes)

    def archive() -> Iterator[bytes]:
        sent = 0
        for number in itertools.count():
            piece = b"".join(file(f"{number}-{each}") for each in range(20))
            yield piece
            sent += len(piece)
            if sent > FITS_NO_BUFFER:
                begun.set()  # so dockerd reads: the plugin has let it
            if over.wait(0.01):
                return

    def post() -> None:
        with (
            contextlib.suppress(requests.RequestException),
            contextlib.closing(dockerd.client()) as client,
        ):
            client.post(f"{client.base_url}/images/create?fromSrc=-", data=archive())

    thread = threading.Thread(target=post)
    thread.start()
    try:
        assert begun.wait(LIMIT_S)
        yield
    finally:
        over.set()
        thread.join(LIMIT_S)
