"""Lets a network namespace reach a few servers, and nothing else of the network.

``python3 -I network.py PID ADDRESS=NAME...``: where a process ``PID`` lives, ports 80 and 443 of
each loopback ADDRESS lead to those of NAME out here. Writes one line when all of them listen.
The names are put into the ``/etc/hosts`` in there; nothing is routed, and no firewall is touched.
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

PORTS = (80, 443)
CLONE_NEWNET = 0x40000000


def listeners(pid: int, addresses: list[str]) -> dict[tuple[str, int], socket.socket]:
    """Open sockets in the namespace: a socket stays where it was made, and the thread may go."""

    def enter_and_listen() -> dict[tuple[str, int], socket.socket]:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        return {(a, p): socket.create_server((a, p)) for a in addresses for p in PORTS}

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter_and_listen).result()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()
        target.write_eof()


async def serve(pid: int, names: dict[str, str]) -> None:
    """Forward until killed. ``names``: loopback address in there to a name out here."""
    servers = []
    for (address, port), listener in listeners(pid, list(names)).items():

        async def forward(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            name: str = names[address],
            port: int = port,
        ) -> None:
            with contextlib.closing(writer):
                there, back = await asyncio.open_connection(name, port)
                with contextlib.closing(back):
                    await asyncio.gather(copy(reader, back), copy(there, writer))

        servers.append(await asyncio.start_server(forward, sock=listener))
    os.write(1, b"listening\n")
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    pairs = [argument.split("=") for argument in sys.argv[2:]]
    asyncio.run(serve(int(sys.argv[1]), dict(pairs)))
