"""The terminal: its abilities; and stdout, which may be full or gone."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from gpud.core.errors import GpudError

ASCII = str.maketrans({"µ": "u", "≤": "<="})


def dumb() -> bool:
    """Say whether the terminal on stderr moves no cursor and shows no colour."""
    return os.environ.get("TERM", "dumb").lower() in {"", "dumb", "unknown"}


def ascii_only(stream: TextIO) -> bool:
    """Say whether block elements would not be seen as such.

    The locale counts before the stream's own encoding: Python takes UTF-8 in the C locale too.
    """
    if "utf" not in (stream.encoding or "").lower():
        return True
    if stream.isatty() and dumb():
        return True
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "C.UTF-8")
    return "utf" not in locale.lower()


def put(text: str) -> None:
    """Write to stdout, all of it, now.

    Errors: ``GpudError`` when it cannot be written; ``BrokenPipeError`` when nobody reads on.
    """
    out = sys.stdout
    try:
        text.encode(out.encoding or "ascii")
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode("ascii", "backslashreplace").decode()
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left in the buffer would be tried, and complained about, once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise GpudError(f"cannot write the result: {error.strerror}") from error
