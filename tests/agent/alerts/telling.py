"""Alerts to send, sinks to send them to, and receivers of every kind on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gpud.agent.alerts import wording
from gpud.agent.alerts.functions import Lost, Subject, Why
from gpud.agent.alerts.message import Message
from gpud.agent.alerts.sink import Context
from gpud.core.advice import Platform
from gpud.core.alerts import Alert, Severity
from gpud.core.errors import DeliveryError
from gpud.core.settings import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpud.agent.alerts.sink import Sink

HOST = "ada"
SLOW = Alert(
    "GpudUnwell",
    Severity.WARNING,
    {"kind": "driver", "gpu": "0"},
    "submission latency +38 % (12.4 -> 17.1 µs) since driver 572.16 -> 576.02",
    "launch submit: 12.4 µs -> 17.1 µs\nlaunch pipelined: 3.1 µs -> 4.2 µs",
    1_790_000_000.0,
    1_790_000_060.0,
    fix="install driver 572.16 again",
)
LOST = Alert(
    "GpudFunctionLost",
    Severity.CRITICAL,
    {"function": "cuda"},
    "CUDA worked under driver 572.16 and fails under 576.02",
    "",
    1_790_000_030.0,
    1_790_000_030.0,
)
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\r\n$(touch {mark}) `touch {mark}` ; touch {mark} # \" ' \\ "
    "<script>alert(1)</script> </text><image src='file:///x'/> <!DOCTYPE x [<!ENTITY a 'b'>]> & "
    "%n %s \x00 \u202egpj.exe\u2066 \ud800 \x9b31m @('x') {{{{}}}} ${{HOME}} \ufffe\uffff"
)
"""To be formatted with a path that nothing may make."""


def ended(alert: Alert, at_s: float) -> Alert:
    return structs.replace(alert, ends_s=at_s, updated_s=at_s)


def firing(*alerts: Alert) -> Message:
    return Message(alerts, (), alerts)


def hostile(mark: Path, *, long: bool = False) -> Alert:
    """An alert with hostile text in every foreign part; ``long``: a megabyte of it in each."""
    text = HOSTILE.format(mark=mark)
    if long:
        text *= 1_000_000 // len(text) + 1
    lost = Lost(Subject("cuda", text), text, f"!{text}", Why(text, text, text), 1e300)
    return wording.lost(lost, {text: text}, Platform.WSL2)


def context(folder: Path, text: str = "", *, timeout_s: float = 30.0) -> Context:
    """What sinks get: a home in ``folder``, ``text`` as the settings of ``[alerts]``."""
    for place in ("run/gpud", "var/log/gpud/agent"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / "var/log/gpud/agent/agent.log").touch()
    settings = parse(
        f'sysroot = "{folder}"\n[alerts]\n{text}\n'.encode(),
        {},
        home=str(folder),
    )
    return Context(settings, HOST, spawned=lambda: None, timeout_s=timeout_s)


def only(name: str, made_for: Context) -> Sink:
    """Give the one sink of a plug-in."""
    [sink] = import_module(f"gpud.agent.alerts.sinks.{name}").create(made_for)
    made: Sink = sink
    return made


def webhook(folder: Path, url: str, *, timeout_s: float = 30.0, more: str = "") -> Sink:
    """Give a webhook to ``url``; ``more`` are lines of ``[alerts]``."""
    made_for = context(folder, f'webhook_urls = ["{url}"]\n{more}', timeout_s=timeout_s)
    return only("webhook", made_for)


def refusal(sink: Sink, message: Message) -> DeliveryError:
    """Send, and give why it was not delivered."""

    async def once() -> DeliveryError:
        try:
            await sink.send(message)
        except DeliveryError as error:
            return error
        raise AssertionError("it was delivered")

    return asyncio.run(once())


@dataclass
class Receiver:
    """Something that listens. ``answer`` does what it likes with a connection once asked."""

    answer: Callable[[socket.socket], None]
    secure: Callable[[socket.socket], socket.socket] = lambda connection: connection
    requests: list[tuple[str, bytes]] = field(default_factory=list)  # head and body
    contacted: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            spoken = self.secure(connection)
            self._open.append(spoken)
            self.requests.append(request(spoken))
            self.contacted.set()
            self.answer(spoken)
            spoken.close()


def request(connection: socket.socket) -> tuple[str, bytes]:
    """Read one request: its head, and its body by its length."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (chunk := connection.recv(65536)):
            raise OSError("hung up")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.splitlines()
        if line.lower().startswith(b"content-length:")
    ]
    while len(body) < sum(lengths):
        if not (chunk := connection.recv(65536)):
            raise OSError("hung up")
        body += chunk
    return head.decode("latin-1"), body


def says(status: str, *headers: str, body: bytes = b"") -> Callable[[socket.socket], None]:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    data = "\r\n".join(lines).encode() + body
    return lambda connection: connection.sendall(data)


OK = says("200 OK")


@contextlib.contextmanager
def receiver(
    answer: Callable[[socket.socket], None] = OK,
    secure: Callable[[socket.socket], socket.socket] = lambda connection: connection,
) -> Iterator[Receiver]:
    made = Receiver(answer, secure)
    try:
        yield made
    finally:
        made.close()
