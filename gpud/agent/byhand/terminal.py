"""What the terminal in front of a person can show; and stdout, which may be full or gone."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

from gpud.core.errors import GpudError

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 80
WIDEST = 100
ASCII = str.maketrans({"µ": "u", "≤": "<="})

Line = tuple[str, str]
"""Text and the style rich gives it; both may be empty."""


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


def width(stream: TextIO) -> int:
    """Give the columns to draw in."""
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDEST) if stream.isatty() else WIDTH


def show(lines: Sequence[Line]) -> None:
    """Print the lines, coloured where that can be seen.

    Errors: ``GpudError`` when they cannot be written; ``BrokenPipeError`` when nobody reads on.
    """
    out = sys.stdout
    if out.isatty() and not dumb():
        put(_coloured(lines))
    else:
        put("".join(f"{text}\n" for text, _ in lines))


def put(text: str) -> None:
    """Write to stdout, all of it, now. Errors: as those of ``show``."""
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


def _coloured(lines: Sequence[Line]) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    with console.capture() as captured:
        for text, style in lines:
            console.print(Text(text, style=style), soft_wrap=True, highlight=False)
    return captured.get()
