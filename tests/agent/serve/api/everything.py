"""Every route of the agent, served over a real socket on a history that has something of all."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent.alerts import rows
from gpud.agent.history import writes
from gpud.agent.history.records import Entry
from gpud.agent.history.store import History
from gpud.agent.serve.api.routes import routes
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.test_web import served
from tests.histories import DAY_S, failed, opened, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import Condition


@contextmanager
def everything(home: Path, snapshot: Snapshot | None = None) -> Iterator[int]:
    """Give the port."""
    snapshot = snapshots.full() if snapshot is None else snapshot
    settings = parse(None, {}, home=str(home))
    folder = Path(settings.state_dir)
    folder.mkdir(parents=True)
    now_s = time.time()
    with opened(folder) as store:
        store.append([run(now_s - 600.0 * n, modes=("submit", "roundtrip")) for n in range(600)])
        store.append([run(now_s - DAY_S / 2, gpu="GPU-2"), failed(now_s - 30)])
        ended = replace(snapshots.SLOWER, starts_s=1.0, updated_s=9.0, ends_s=9.0)
        store.write(lambda connection: rows.put(connection, [ended]))
        changed: dict[str, Condition] = {
            "old": "566.36",
            "new": "572.16",
            "level": 5,
            "boot_id": "boot",
        }
        store.write(
            writes.events, [Entry(now_s - n, "driver_version", changed) for n in range(200)]
        )
    kept = History(folder)
    asked = routes(lambda: snapshot, kept, settings, time.time)
    try:
        with served(snapshot, asked) as port:
            yield port
    finally:
        asyncio.run(kept.close())
