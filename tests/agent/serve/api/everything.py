"""Every route of the agent, on a history that has something of everything."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from msgspec import structs
from starlette.applications import Starlette

from gpud.agent.alerts import state as alertstate
from gpud.agent.history import records
from gpud.agent.history.records import Entry
from gpud.agent.history.store import History
from gpud.agent.history.telemetry import write_minutes
from gpud.agent.serve.api import answers, endpoints
from gpud.core.clock import Instant
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.armed import armed
from tests.histories import DAY_S, failed, opened, run, telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Condition


def state_folder(home: Path) -> Path:
    """Make the folder of the history."""
    folder = Path(parse(None, {}, home=str(home)).state_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def everything(home: Path, snapshot: Snapshot | None = None) -> Iterator[int]:
    """Serve all routes over a real socket; gives the port."""
    folder = state_folder(home)
    now_s = time.time()
    changed: dict[str, Condition] = {"old": "566.36", "new": "572.16", "level": 5, "boot_id": "b"}
    with opened(folder) as store:
        store.append([run(now_s - 600.0 * n, modes=("submit", "roundtrip")) for n in range(600)])
        store.append([run(now_s - DAY_S / 2, gpu="GPU-2"), failed(now_s - 30)])
        minutes = [telemetry(now_s - 60 * n, throttle_thermal_ratio=0.5) for n in range(600)]
        store.write(write_minutes, minutes)
        ended = structs.replace(snapshots.SLOWER, starts_s=1.0, updated_s=9.0, ends_s=9.0)
        store.write(lambda connection: alertstate.put(connection, [ended]))
        store.write(
            records.write_events, [Entry(now_s - n, "driver_version", changed) for n in range(200)]
        )
    with armed(snapshot=snapshot, home=home) as server:
        yield server.port


@asynccontextmanager
async def client(
    home: Path, snapshot: Snapshot | None = None, now_s: float = snapshots.NOW.wall_s
) -> AsyncIterator[httpx.AsyncClient]:
    """Ask the API of the history below ``home`` without a socket."""
    published = snapshots.full() if snapshot is None else snapshot
    settings = parse(None, {}, home=str(home))
    history = History(Path(settings.state_dir))
    now = Instant(now_s, snapshots.NOW.mono_s)
    routes = endpoints.routes(lambda: published, history, settings, lambda: now)
    application = Starlette(routes=routes, exception_handlers=answers.HANDLERS)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as asks:
        yield asks
    await history.close()


def ask_api(
    home: Path, path: str, snapshot: Snapshot | None = None, **query: object
) -> tuple[int, dict[str, Any]]:
    """Ask one question; gives status and document."""

    async def asking() -> httpx.Response:
        async with client(home, snapshot) as asks:
            return await asks.get(f"/api/v1/{path}", params=query)  # type: ignore[arg-type]

    answer = asyncio.run(asking())
    return answer.status_code, json.loads(answer.content)
