"""Styled lines as a terminal takes them, and whether it takes styles at all.

Six SGR codes are all there is to it; rich, which wraps, measures and themes, takes 55 ms to import.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from gpud.show.view import View
from gpud.term import terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

    from gpud.show.view import Line

_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}
_OFF: Final = "\x1b[0m"


def wanted(when: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether to colour: asked for, or a terminal that can and nobody who said NO_COLOR."""
    if when != "auto":
        return when == "always"
    return stream.isatty() and not terminal.dumb() and not environ.get("NO_COLOR")


def painted(lines: Iterable[Line], *, colour: bool) -> str:
    """Give lines as text, each with its line feed."""
    return "".join(f"{one(line, colour=colour)}\n" for line in lines)


def one(line: Line, *, colour: bool) -> str:
    """Give a line as text without a line feed; blanks have no style."""
    if not colour:
        return "".join(span.text for span in line).rstrip()
    return "".join(_span(span.text, span.style) for span in line).rstrip()


def view(stream: TextIO) -> View:
    """Give the room on the terminal behind a stream, or an endless roll where there is none."""
    ascii_only = terminal.ascii_only(stream)
    if not stream.isatty():
        return View(ascii_only=ascii_only)
    size = shutil.get_terminal_size()
    return View(size.columns or 80, size.lines or 24, ascii_only=ascii_only)


def _span(text: str, style: str) -> str:
    codes = ";".join(str(_CODES[word]) for word in style.split())
    return f"\x1b[{codes}m{text}{_OFF}" if codes and text.strip() else text
