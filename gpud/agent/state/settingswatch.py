"""Health of the settings files: degraded while everybody on the machine can read a secret there."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from gpud import settings_files
from gpud.agent.state.events import HealthSet
from gpud.core.errors import ConfigError
from gpud.core.health import Level

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpud.agent.state.events import Event

EVERY_S: Final = 10.0


async def watch(config: Path, home: str, post: Callable[[Event], None]) -> None:
    """Look at the files in a thread, again and again; publish what changed."""
    before = ""
    while True:
        try:
            found = await asyncio.to_thread(settings_files.exposed, config, home)
        except ConfigError:  # `http` reports a file that cannot be used
            found = []
        words = "; ".join(map(str, found))
        if words != before:
            level, reason = (Level.DEGRADED, "secrets_exposed") if found else (Level.OK, None)
            fix = "; ".join(one.fix for one in found) or None
            post(
                HealthSet(
                    "settings", level, time.time(), reason=reason, detail=words or None, fix=fix
                )
            )
            before = words
        await asyncio.sleep(EVERY_S)
