"""Health of the settings files: degraded while everybody on the machine can read a secret there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gpud import settings_files
from gpud.core.errors import ConfigError
from gpud.core.health import Health, Level

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.state.board import Board

EVERY_S: Final = 10.0


async def look(config: Path, home: str, board: Board) -> None:
    """Look at the files in a thread; publish what changed."""
    try:
        exposed = await asyncio.to_thread(settings_files.exposed, config, home)
    except ConfigError:  # `http` reports a file that cannot be used
        exposed = []
    words = "; ".join(map(str, exposed))
    before = board.read().health.get("settings")
    if words == ((before and before.detail) or ""):
        return
    level, reason = (Level.DEGRADED, "secrets_exposed") if exposed else (Level.OK, None)
    fix = "; ".join(one.fix for one in exposed) or None
    board.set_health("settings", Health(level, reason, words or None, fix))
