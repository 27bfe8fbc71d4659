"""The structlog chain, configured once: JSON to a rotated file, and lines on the terminal.

Strings from outside (a driver, Docker, a file) are hostile when shown: no control character passes.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import sys
from typing import TYPE_CHECKING, Any

import structlog

from gpud.core.text import escaped_fields

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

LARGEST_FILE = 5 * 1024 * 1024
OLD_FILES = 3


def configure(file: Path, *, level: str, quietly: bool = False) -> None:
    """Log at ``level`` and above to ``file`` (JSON) and, but ``quietly``, to stderr (readable).

    Errors: none; a file that cannot be opened is said on stderr, and stderr goes on.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.raiseExceptions = False  # a full disk under the log is no reason for a traceback
    root = logging.getLogger()
    for before in root.handlers:
        if isinstance(before, logging.FileHandler):
            before.close()
    root.handlers.clear()
    root.setLevel(level.upper())
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _for_a_terminal,
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28),
            ],
        )
    )
    if not quietly:
        root.addHandler(console)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it reports every run it starts
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))  # this, each start
    try:
        root.addHandler(_json_file(file, shared))
    except OSError as error:
        if not quietly:
            structlog.get_logger().warning("no_log_file", path=str(file), error=error.strerror)


def _json_file(file: Path, shared: list[Any]) -> logging.Handler:
    """Open the rotated JSON log. Errors: ``OSError``."""
    file_handler = logging.handlers.RotatingFileHandler(
        file, maxBytes=LARGEST_FILE, backupCount=OLD_FILES, encoding="utf-8"
    )
    file_handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.dict_tracebacks,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    with contextlib.suppress(OSError):  # people may read it, where the directory is theirs
        os.chown(file, -1, file.parent.stat().st_gid)
    return file_handler


def _for_a_terminal(_: object, __: str, line: MutableMapping[str, Any]) -> Any:  # noqa: ANN401
    """Escape the fields, and keep tracebacks to the file: a person gets one line."""
    line.pop("exc_info", None)
    return escaped_fields(line)
