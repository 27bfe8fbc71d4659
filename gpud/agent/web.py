"""The one listener: page, metrics, health, status. Each answer is made of a finished snapshot.

Nothing here starts a probe or changes state, and only GET and HEAD exist.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import html
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gpud.agent import status
from gpud.agent.export.exposition import encoded
from gpud.core import gpu_table
from gpud.core.errors import ListenError
from gpud.core.proc import listening
from gpud.core.stats import figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from gpud.agent.export.collector import SnapshotCollector
    from gpud.core.clock import Instant
    from gpud.core.settings import Settings
    from gpud.core.snapshot import Snapshot

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised, not bound
OPEN_CONNECTIONS = 256


def app(
    read: Callable[[], Snapshot],
    settings: Settings,
    collector: SnapshotCollector,
    now: Callable[[], Instant],
    more: Sequence[Route] = (),
) -> ASGIApp:
    """Build the application. ``read`` gives the snapshot every answer is made of.

    ``more`` are the routes of what is not in a snapshot: the history.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)

    async def page(_: Request) -> Response:
        return HTMLResponse(_page(status.document(read(), now=now())))

    async def metrics(request: Request) -> Response:
        body, content_type = encoded(registry, request.headers.get("accept", ""))
        headers = {"content-type": content_type, "vary": "accept, accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            headers["content-encoding"] = "gzip"
        return Response(body, headers=headers)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("gpud is alive\n")

    async def ready(_: Request) -> Response:
        if any(state.report is not None for state in read().probes.values()):
            return PlainTextResponse("gpud is ready\n")
        return PlainTextResponse("the first probes have not ended yet\n", status_code=503)

    async def status_json(_: Request) -> Response:
        return JSONResponse(status.document(read(), now=now()))

    async def not_found(request: Request, _: Exception) -> Response:
        return PlainTextResponse(
            f"there is no {request.url.path!a:.100}; try / or /metrics\n", status_code=404
        )

    routes = [
        Route("/", page),
        Route("/metrics", metrics),
        Route("/-/healthy", healthy),
        Route("/-/ready", ready),
        Route("/api/v1/status", status_json),
        *more,
    ]
    inner = Starlette(routes=routes, exception_handlers={404: not_found})
    return _Guard(inner, settings.http.host)


class _Guard:
    """Headers on every answer, and no answer to a foreign Host: that is how DNS rebinding asks."""

    def __init__(self, inner: ASGIApp, host: str) -> None:
        self._inner = inner
        self._hosts = None if host in WILDCARDS else LOOPBACK | {host, f"[{host}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:  # noqa: ANN401  # an ASGI message
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        answer: ASGIApp = self._inner
        if self._hosts is not None and _host(scope) not in self._hosts:
            answer = PlainTextResponse(
                "this address is not served under that name; use 127.0.0.1 or localhost\n",
                status_code=421,
            )
        await answer(scope, receive, with_headers)


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket.

    Errors: ``ListenError`` naming the address and, when /proc tells, the process that has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                f"{host}:{port} is taken{_holder(port)}",
                fix="stop that program, or set [http] listen to another port",
            ) from error
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


async def serve(application: ASGIApp, listener: socket.socket, stop: asyncio.Event) -> None:
    """Answer on ``listener`` until ``stop`` is set; open requests get a second to end."""
    server = _Server(
        uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=65,  # above Prometheus's scrape interval: one connection is kept
            timeout_graceful_shutdown=1,
            limit_concurrency=OPEN_CONNECTIONS,
            backlog=128,
        )
    )
    await server.serve_until(listener, stop)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    async def serve_until(self, listener: socket.socket, stop: asyncio.Event) -> None:
        serving = asyncio.create_task(self._serve([listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self.should_exit = True
        stopping.cancel()
        await serving


def _host(scope: Scope) -> str:
    """Give the Host header without its port."""
    for name, value in scope["headers"]:
        if name == b"host":
            text: str = value.decode("latin-1")
            bare, colon, port = text.rpartition(":")
            return bare if colon and port.isdigit() else text
    return ""


def _holder(port: int) -> str:
    """Say who listens on ``port``: root's processes stay anonymous to an unprivileged agent."""
    inodes = set[str]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            text = Path(table).read_text()
        except OSError:
            continue
        inodes |= {f"socket:[{inode}]" for inode in listening(text, port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                return f" by {name} (pid {process.name})"
        except OSError:
            continue
    return " by another process" if inodes else " (outside this distribution?)"


def _page(document: dict[str, Any]) -> str:
    def cell(value: object) -> str:
        return html.escape("" if value is None else str(value))

    health = "".join(
        f"<tr><th scope=row>{cell(name)}<td>{cell(('ok', 'degraded', 'failed')[entry['level']])}"
        f"<td>{cell(entry['detail'])}<td>{cell(entry['fix'])}"
        for name, entry in sorted(document["health"].items())
    )
    figures = "".join(
        f"<tr><th scope=row>{cell(state['probe'])}<td>"
        f"{'CPU' if state['gpu'] is None else 'GPU ' + cell(state['gpu'])}"
        f"<td>{cell(sample['mode'])}<td>{figure(sample)}"
        f"<td>{cell(', '.join(state['flags']))}"
        for state in document["probes"]
        for sample in state["samples"]
    )
    gpus = "".join(
        "<tr>" + "".join(f"<td>{cell(value)}" for value in row) for row in gpu_table.rows(document)
    )
    if gpus:
        heads = "".join(f"<th scope=col>{cell(heading)}" for heading in gpu_table.HEADINGS)
        source = gpu_table.source(document, document["written_s"])
        gpus = f"""<h2>GPUs</h2>
<p>{cell(gpu_table.versions(document))}; telemetry from {cell(source)}</p>
<table><tr>{heads}{gpus}</table>
<p>{cell(gpu_table.missing(document))}</p>"""
    alerts = "".join(
        f"<tr><th scope=row>{cell(alert['severity'])}<td>{cell(alert['summary'])}"
        f"<td>{time.strftime('%Y-%m-%d %H:%M', time.localtime(alert['starts_s']))}"
        f"<td>{cell(alert['fix'])}"
        f"<td>{'yes' if alert['acknowledged_s'] is not None else ''}"
        for alert in document["alerts"]
        if alert["firing"]
    )
    if alerts:
        alerts = f"""<h2>Alerts</h2>
<table><tr><th scope=col>severity<th scope=col>what<th scope=col>since<th scope=col>fix
<th scope=col>acknowledged{alerts}</table>"""
    changed = "".join(
        f"<tr><th scope=row>{time.strftime('%Y-%m-%d %H:%M', time.localtime(at_s))}"
        f"<td>{cell(', '.join(words))}"
        for at_s, words in reversed(gpu_table.changes(document))
    )
    if changed:
        changed = f"""<h2>Changes</h2>
<table><tr><th scope=col>when<th scope=col>what{changed}</table>"""
    left_out = "".join(
        f"<tr><th scope=row>{cell(one['probe'])}<td>"
        f"{'' if one['gpu'] is None else 'GPU ' + cell(one['gpu'])}"
        f"<td>{cell(one['reason'].replace('_', ' '))}<td>{cell(one['count'])}"
        for one in document["put_off"]
    )
    if left_out:
        left_out = f"""<h2>Left out</h2>
<table><tr><th scope=col>probe<th scope=col>on<th scope=col>because
<th scope=col>times in a row{left_out}</table>"""
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>gpud: {cell(document["state"])}</title>
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884 }}
</style>
<h1>gpud: {cell(document["state"])}</h1>
{alerts}
<h2>Health</h2>
<table><tr><th scope=col>component<th scope=col>state<th scope=col>because<th scope=col>fix{health}
</table>
{gpus}
{changed}
<h2>Last figures</h2>
<table><tr><th scope=col>probe<th scope=col>on<th scope=col>mode
<th scope=col>median<th scope=col>marks{figures}</table>
{left_out}
<p><a href="/metrics">metrics</a> · <a href="/api/v1/status">status</a> ·
<a href="/api/v1/events">events</a> ·
<a href="/api/v1/alerts?since=0">alerts</a> ·
gpud {cell(document["version"])}</p></html>
"""
