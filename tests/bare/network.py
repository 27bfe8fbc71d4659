"""Lets a network namespace reach the servers of an installation, through an HTTP proxy.

``python3 -I network.py PID ADDRESS PORT``: the proxy listens where a process ``PID`` lives and
connects out here. Writes one line when it listens. Nothing is routed, and no firewall is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

CLONE_NEWNET = 0x40000000


def listener(pid: int, address: str, port: int) -> socket.socket:
    """Open a socket in the namespace: it stays where it was made, and the thread may go."""

    def enter_and_listen() -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return socket.create_server((address, port))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter_and_listen).result()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()
        target.write_eof()


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: a tunnel, or requests to the server that the first one names."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
        head = await reader.readuntil(b"\r\n\r\n")
        method, target = head.split(maxsplit=2)[:2]
        tunnel = method == b"CONNECT"
        url = urlsplit(f"//{target.decode()}" if tunnel else target.decode())
        there, back = await asyncio.open_connection(url.hostname, url.port or 80)
        with contextlib.closing(back):
            if tunnel:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                back.write(head)  # a server takes the whole URL, too
            await asyncio.gather(copy(reader, back), copy(there, writer))


async def serve(pid: int, address: str, port: int) -> None:
    """Forward until killed."""
    server = await asyncio.start_server(forward, sock=listener(pid, address, port))
    os.write(1, b"listening\n")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
