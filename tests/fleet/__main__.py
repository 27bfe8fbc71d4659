"""Serve a made-up fleet on the loopback address: `python -m tests.fleet --hosts 60`.

Prints {"port": N} when it listens. /HOST/metrics is a machine's scrape, /targets.json the list of
those that have not left, for http_sd; `?of=2&part=0` is every second one. What happens to machines
comes as lines of JSON on standard input, each answered with what was served since the start:

    {"sleep": [HOST...]}                  they do not answer, and do nothing
    {"wake": [HOST...], "slept_s": 7200}  they do again, and know that they slept
    {"leave": [HOST...]}, {"join": [HOST...]}    off the list, and back
    {}                                    nothing; how many scrapes of whom by whom
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gpud.core.clock import Instant
from tests.fleet import world
from tests.fleet.machine import Machine

if TYPE_CHECKING:
    from starlette.requests import Request


def now() -> Instant:
    return Instant(time.time(), time.monotonic())


class Fleet:
    """The machines, who of them sleeps or has left, and what was served."""

    def __init__(self, hosts: int, round_s: float) -> None:
        self.machines = {host.name: Machine(host, now(), round_s) for host in world.fleet(hosts)}
        self.asleep = set[str]()
        self.left = set[str]()
        self.served = Counter[str]()  # "HOST BY-WHOM"

    async def metrics(self, request: Request) -> Response:
        name = request.path_params["host"]
        if name not in self.machines or name in self.asleep:
            return Response(status_code=503)
        body, content_type = self.machines[name].scrape(request.headers.get("accept", ""), now())
        self.served[f"{name} {request.headers.get('user-agent', '').partition('/')[0]}"] += 1
        return Response(body, headers={"content-type": content_type})

    async def alerts(self, _: Request) -> Response:
        """Take what vmalert tells an Alertmanager; it does not start without one."""
        return Response()

    async def targets(self, request: Request) -> Response:
        of = int(request.query_params.get("of", 1))
        part = int(request.query_params.get("part", 0))
        return JSONResponse(self.listed(request.url.netloc, of, part))

    def listed(self, address: str, of: int, part: int) -> list[dict[str, Any]]:
        """Give the list as targets.py writes it; machines of one address differ by their path."""
        return [
            {
                "targets": [address],
                "labels": {
                    "instance": name,
                    "__metrics_path__": f"/{name}/metrics",
                    "site": "lab" if machine.host.always_on else "home",
                    "owner": ("ada", "grace")[machine.host.number % 2],
                    **({"always_on": "true"} if machine.host.always_on else {}),
                },
            }
            for place, (name, machine) in enumerate(self.machines.items())
            if name not in self.left and place % of == part
        ]

    def told(self, command: dict[str, Any]) -> None:
        """Do what a line of standard input says."""
        self.asleep.update(command.get("sleep", ()))
        self.left.update(command.get("leave", ()))
        self.left.difference_update(command.get("join", ()))
        for name in command.get("wake", ()):
            self.asleep.discard(name)
            self.machines[name].wake(now(), command["slept_s"])


async def serve(hosts: int, round_s: float) -> None:
    """Serve until standard input ends."""
    fleet = Fleet(hosts, round_s)
    routes = [
        Route("/targets.json", fleet.targets),
        Route("/{host}/metrics", fleet.metrics),
        Route("/api/v2/alerts", fleet.alerts, methods=["POST"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), log_level="error", access_log=False)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    serving = asyncio.create_task(server.serve([listener]))
    print(json.dumps({"port": port}), flush=True)
    while line := await reader.readline():
        fleet.told(json.loads(line))
        print(json.dumps(fleet.served), flush=True)
    server.should_exit = True
    await serving


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=60)
    parser.add_argument("--round", type=float, default=10.0, help="seconds")
    given = parser.parse_args()
    asyncio.run(serve(given.hosts, given.round))


if __name__ == "__main__":
    main()
