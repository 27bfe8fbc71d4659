"""A name for this machine that lasts: host names of WSL are those of Windows, and many are alike.

It is random, made once and kept in the state directory. Nothing of it comes from the hardware or
from Windows, so it says nothing of either, and whoever wants another one deletes the file.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import structlog

from gpud import regular_file
from gpud.agent.serve.metrics.families import clean

NAME = "machine-id"
ID = re.compile(r"[0-9a-f]{32}")

log = structlog.get_logger()


def facts(state_dir: str, hostname: str) -> dict[str, str]:
    """Give ``hostname`` and ``machine_id``, 32 hexadecimal digits; without it where none is kept.

    Errors: none; an id that could not be written would be another one at the next start.
    """
    path = Path(state_dir, NAME)
    names = {"hostname": clean(hostname)}
    try:
        names["machine_id"] = _read(path) or _made(path)
    except OSError as error:
        log.warning("no_machine_id", path=str(path), error=error.strerror)
    return names


def _read(path: Path) -> str | None:
    stored = (regular_file.text(path) or "").strip()
    return stored if ID.fullmatch(stored) else None


def _made(path: Path) -> str:
    made = secrets.token_hex(16)
    regular_file.replace(path, f"{made}\n".encode())  # read by what ships the metrics
    return made
