"""A listener with given settings, certificates for both sides, and clients on raw sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from gpud.agent.history.store import History
from gpud.agent.serve.http.access import AccessControl, RefusalCounter
from gpud.agent.serve.http.app import app
from gpud.agent.serve.http.certificate import Certificate
from gpud.agent.serve.http.service import bind, serve
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.core.settings import parse
from tests import snapshots
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from starlette.requests import Request

    from gpud.agent.serve.http.connection import ConnectionLimits
    from gpud.agent.serve.refusals import Refused
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings

PASSPHRASE = "correct horse battery staple"  # noqa: S105  # for nobody
HASHED = "$2b$04$IWwWhU3RYZoacFpQve7iBuGtLMUik5NlkxvB.7rR9Usg6bRL21vY6"
"""Of ``PASSPHRASE``, as cheap as bcrypt goes: tests check many."""


@dataclass(frozen=True)
class Authority:
    """A folder with a certificate authority in it, and what it signs."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def signed(self, name: str, *options: str, sans: str = "DNS:localhost,IP:127.0.0.1") -> Path:
        """Make ``name``.pem and ``name``.key (EC, P-256); ``options``: of ``openssl req``."""
        made = self.folder / f"{name}.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key"),
            "-subj", f"/CN={name}", "-addext", f"subjectAltName={sans}",
            "-addext", "basicConstraints=critical,CA:FALSE",
            "-keyout", str(self.folder / f"{name}.key"), "-out", str(made),
            *(options or ("-days", "90")),
        )  # fmt: skip
        (self.folder / f"{name}.key").chmod(0o640)
        return made

    def expired(self, name: str, sans: str = "DNS:localhost,IP:127.0.0.1") -> Path:
        """The same, whose last day was yesterday."""
        made = self.folder / f"{name}.pem"
        key, request = made.with_suffix(".key"), made.with_suffix(".csr")
        openssl(
            "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName={sans}",
            "-keyout", str(key), "-out", str(request),
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate),
            "-CAkey", str(self.folder / "ca.key"), "-days", "-1", "-copy_extensions", "copy",
            "-out", str(made),
        )  # fmt: skip
        key.chmod(0o640)
        return made


def authority(folder: Path) -> Authority:
    folder.mkdir(parents=True, exist_ok=True)
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-days", "90", "-subj", "/CN=ca", "-addext", "keyUsage=critical,keyCertSign",
        "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem"),
    )  # fmt: skip
    return Authority(folder)


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass
class Armed:
    """A listener in a thread with a loop of its own. ``https`` is set where it speaks TLS."""

    port: int
    certificate: Certificate | None = None
    https: ssl.SSLContext | None = None
    kept: list[socket.socket] = field(default_factory=list)
    turned_away: Counter[Refused] = field(default_factory=Counter)

    def connect(self, *, tls: bool | None = None) -> socket.socket:
        """Open a connection, with TLS where the listener speaks it."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        if self.https is None or tls is False:
            return raw
        try:
            return self.https.wrap_socket(raw, server_hostname="localhost")
        except BaseException:
            raw.close()
            raise

    def keep(self, count: int, sent: bytes = b"", *, tls: bool | None = None) -> None:
        """Open connections that send this much and then nothing; closed at the end."""
        for _ in range(count):
            try:
                client = self.connect(tls=tls)
                self.kept.append(client)
                client.sendall(sent)
            except OSError:  # sent away meanwhile
                continue

    def raw(self, sent: bytes, within_s: float = LIMIT_S) -> bytes:
        """Send bytes and give everything that comes until the end of the connection."""
        received = b""
        with contextlib.suppress(OSError), self.connect() as client:
            client.settimeout(within_s)
            client.sendall(sent)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                received += piece
        return received

    def scrape(self, authorization: str = "", opened: socket.socket | None = None) -> int:
        """Ask for /metrics on a new connection, or ``opened``, and return the HTTP status."""
        line = f"authorization: {authorization}\r\n" if authorization else ""
        with opened or self.connect() as client:
            client.settimeout(10)
            head = f"GET /metrics HTTP/1.1\r\nhost: localhost\r\n{line}"
            client.sendall(f"{head}connection: close\r\n\r\n".encode())
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        status = int(answer.split(b" ", 2)[1])
        assert status != 200 or b"\ngpud_build_info{" in answer
        return status


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def client(trusts: Path, certificate: Path | None = None) -> ssl.SSLContext:
    """How a client speaks TLS: it trusts one authority and may show a certificate."""
    context = ssl.create_default_context(cafile=str(trusts))
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


async def big(_: Request) -> Response:
    """More than the kernel holds for a client that does not read."""
    return Response(bytes(4 * 1024 * 1024))


def ask(
    port: int, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request; return status, headers and body."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@contextlib.contextmanager
def armed(  # what is served, and on which terms
    text: str = "",
    https: ssl.SSLContext | None = None,
    limits: ConnectionLimits | None = None,
    *,
    snapshot: Snapshot | None = None,
    home: Path | None = None,
    more: Sequence[Route] = (Route("/big", big),),
) -> Iterator[Armed]:
    """Serve a snapshot and the history below ``home``; ``text`` is the ``[http]`` section."""
    settings = parse(f"[http]\n{text}".encode(), {}, home="/nowhere" if home is None else str(home))
    published = snapshots.full() if snapshot is None else snapshot
    tls = settings.http.tls_server_config
    certificate = Certificate(tls) if tls.enabled else None
    server = Armed(0, certificate, https)
    with web(
        settings,
        lambda: published,
        lambda: snapshots.NOW,
        certificate=certificate,
        limits=limits,
        more=more,
        turned_away=server.turned_away,
    ) as server.port:
        try:
            yield server
        finally:
            for kept in server.kept:
                kept.close()


@contextlib.contextmanager
def web(  # what is served, and on which terms
    settings: Settings,
    read: Callable[[], Snapshot],
    now: Callable[[], Instant],
    *,
    port: int = 0,
    certificate: Certificate | None = None,
    limits: ConnectionLimits | None = None,
    more: Sequence[Route] = (),
    turned_away: Counter[Refused] | None = None,
) -> Iterator[int]:
    """Serve all routes in a thread with a loop of its own; gives the port."""
    collector = SnapshotCollector(read, settings, now)
    history = History(Path(settings.state_dir))
    inner = app(read, history, settings, collector, now)
    inner.router.routes[:0] = more
    counts: Counter[Refused] = Counter() if turned_away is None else turned_away
    refusals = RefusalCounter(counts.update)
    application = AccessControl(inner, settings.http, refusals, certificate)
    listener = bind("127.0.0.1", port)
    stop = asyncio.Event()

    async def run() -> None:
        await serve(
            application, listener, stop, certificate=certificate, refusals=refusals, limits=limits
        )
        await history.close()
        # A browser's spare connection may have come in the last moment; a process would just end.
        for transport in list(loop._transports.values()):  # type: ignore[attr-defined]  # asyncio's
            transport.abort()
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=LIMIT_S)
        listener.close()
        loop.close()


@contextlib.contextmanager
def served(snapshot: Snapshot, more: Sequence[Route] = ()) -> Iterator[int]:
    """Serve a snapshot without a history; gives the port."""
    with armed(snapshot=snapshot, more=more) as server:
        yield server.port
