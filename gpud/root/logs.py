"""structlog for the supervisor: JSON to a rotated file, and lines on the terminal in foreground."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from gpud.core.text import escaped, escaped_fields
from gpud.root import files

if TYPE_CHECKING:
    from io import TextIOWrapper

LARGEST_FILE = 2 * 1024 * 1024
OLD_FILES = 3


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that the group of its directory may read."""

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        files.share(stream.fileno(), Path(self.baseFilename))
        return stream


def configure(file: Path, *, level: str, foreground: bool) -> None:
    """Log at ``level`` and above. Errors: none; without a file the terminal has to do."""
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.raiseExceptions = False  # a full disk under the log is no reason for a traceback
    top = logging.getLogger()
    for handler in top.handlers[:]:
        top.removeHandler(handler)
        handler.close()
    top.setLevel(level.upper())
    if foreground:
        console = logging.StreamHandler(sys.stderr)
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=_short_traceback
        )
        console.setFormatter(_formatter(shared, _escaped, renderer))
        top.addHandler(console)
    try:
        file_handler = _LogFile(
            file, maxBytes=LARGEST_FILE, backupCount=OLD_FILES, encoding="utf-8"
        )
    except OSError as error:
        structlog.get_logger().warning("no_log_file", path=str(file), error=error.strerror)
        return
    lines = structlog.processors.JSONRenderer()
    file_handler.setFormatter(_formatter(shared, structlog.processors.format_exc_info, lines))
    top.addHandler(file_handler)


def _formatter(shared: list[Any], *last: Any) -> logging.Formatter:  # noqa: ANN401  # processors
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )


def _escaped(_: object, __: str, line: Any) -> Any:  # noqa: ANN401  # structlog's own shape
    """Show dockerd's own words without letting them steer the terminal."""
    return escaped_fields(line)


def _short_traceback(stream: Any, error: Any) -> None:  # noqa: ANN401  # structlog's own shape
    """Keep tracebacks to the file: the person at the terminal gets the error itself."""
    stream.write(escaped(f" {error[1]!r}"))
