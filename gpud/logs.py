"""Logs of the supervisor and the agent: JSON to a rotated file, lines on the terminal.

Strings from outside (a driver, Docker, a file) are hostile when shown: no control character passes.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

_bare = "rich" not in sys.modules
if _bare:  # structlog with rich, for tracebacks in colour that nobody draws, is twice as large
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402
from structlog.tracebacks import ExceptionDictTransformer  # noqa: E402

if _bare:
    del sys.modules["rich"]

from gpud.core.text import escaped, escaped_fields  # noqa: E402

if TYPE_CHECKING:
    from io import TextIOWrapper

LARGEST_FILE = 5 * 1024 * 1024
OLD_FILES = 3


def configure(file: Path, *, level: str, terminal: bool = True) -> None:
    """Log at ``level`` and above to ``file`` and, with ``terminal``, to stderr.

    Errors: none; a file that cannot be opened is reported on stderr, which takes its place.
    """
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
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level.upper())
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # it reports every run it starts
    # The schedule logs what fails; that a job ended with the agent before it began is no failure.
    logging.getLogger("apscheduler.executors").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))  # this, each start
    lines = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), pad_event_to=28, exception_formatter=_short_traceback
    )
    if terminal:
        _add(logging.StreamHandler(sys.stderr), shared, _escaped, lines)
    try:
        log_file = _LogFile(file, maxBytes=LARGEST_FILE, backupCount=OLD_FILES, encoding="utf-8")
    except OSError as error:
        if not terminal:
            _add(logging.StreamHandler(sys.stderr), shared, _escaped, lines)
        structlog.get_logger().warning("no_log_file", path=str(file), error=error.strerror)
        return
    # Without the values of variables: a log is for more people than a password in one of them.
    tracebacks = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    _add(log_file, shared, tracebacks, structlog.processors.JSONRenderer())


def share(descriptor: int, path: Path) -> None:
    """Let the group of a directory with the setgid bit, and nobody else, read a log in it."""
    folder = path.parent.stat()
    if folder.st_mode & stat.S_ISGID:
        os.fchown(descriptor, -1, folder.st_gid)
        os.fchmod(descriptor, 0o640)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A log that the group of its directory may read, and that is made again when it is removed."""

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802  # of the standard library
        if self.stream is not None and not os.path.exists(self.baseFilename):  # noqa: PTH110
            self.stream.close()
            self.stream = None  # opened again for this record
        return super().shouldRollover(record)

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        with contextlib.suppress(OSError):
            share(stream.fileno(), Path(self.baseFilename))
        return stream


def _add(handler: logging.Handler, shared: list[Any], *last: Any) -> None:  # noqa: ANN401  # processors
    before = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[before, *last])
    )
    logging.getLogger().addHandler(handler)


def _escaped(_: object, __: str, line: Any) -> Any:  # noqa: ANN401  # structlog's own shape
    return escaped_fields(line)


def _short_traceback(stream: Any, error: Any) -> None:  # noqa: ANN401  # structlog's own shape
    """Keep tracebacks to the file: the person at the terminal gets the error itself."""
    stream.write(escaped(f" {error[1]!r}"))
