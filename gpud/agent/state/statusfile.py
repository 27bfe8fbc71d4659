"""The published status file, agent.json: written after a change, at most once a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gpud.agent.state import status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpud.agent.state.board import Board
    from gpud.core.clock import Instant

PAUSE_S: Final = 1.0
MODE: Final = 0o644
"""Readable for everybody, as root.json is."""

log = structlog.get_logger()


async def write_changes(path: Path, board: Board, now: Callable[[], Instant]) -> None:
    """Write the whole file after each change and rename it into place; never ends."""
    while True:
        await board.changed.wait()
        board.changed.clear()
        document = status.typed(board.read(), now=now())
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(document) + b"\n")
            temporary.chmod(MODE)
            temporary.rename(path)
        except OSError as error:
            log.warning("no_status_file", path=str(path), error=error.strerror)
        await asyncio.sleep(PAUSE_S)
