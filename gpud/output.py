"""Output of the verbs: harmless text, columns, colour, and the terminal's abilities.

Six SGR codes are all the styles there are; rich, which wraps, measures and themes, takes 55 ms to
import.
"""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from gpud.core.text import escaped
from gpud.show.view import ASCII, View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import TextIO

    from gpud.show.view import Line

WIDTH: Final = 100
_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


def say(text: str, *, error: bool = False) -> None:
    """Print text that may quote a driver or Docker: no control character gets through."""
    print(escaped(text, lines=True), file=sys.stderr if error else sys.stdout, flush=True)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Align the cells of rows, those of the columns in ``right`` at their right edge."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def aligned(row: Sequence[str]) -> str:
        cells = enumerate(zip(row, widths, strict=True))
        return "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in cells
        ).rstrip()

    return [aligned(row) for row in rows]


def wrapped(text: str, indent: int | None = None) -> list[str]:
    """Break a line that is wider than a screen, behind its own indent or another."""
    if len(text) <= WIDTH:
        return [text]
    below = len(text) - len(text.lstrip()) + 2 if indent is None else indent
    return wrap(text, WIDTH, subsequent_indent=" " * below, break_on_hyphens=False)


def plain(text: str) -> str:
    """Return text with the letters that a locale without UTF-8 lacks written in ASCII."""
    return text.translate(ASCII) if ascii_only(sys.stdout) else text


def dumb() -> bool:
    """Return whether the terminal moves no cursor and shows no colour."""
    return os.environ.get("TERM", "dumb").lower() in {"", "dumb", "unknown"}


def ascii_only(stream: TextIO) -> bool:
    """Return whether block elements would not be seen as such.

    The locale counts before the stream's own encoding: Python takes UTF-8 in the C locale too.
    """
    if "utf" not in (stream.encoding or "").lower() or (stream.isatty() and dumb()):
        return True
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "C.UTF-8")
    return "utf" not in locale.lower()


def coloured(when: str, stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether to colour; "auto" is on a terminal that can, unless NO_COLOR is set."""
    if when != "auto":
        return when == "always"
    return stream.isatty() and not dumb() and not environ.get("NO_COLOR")


def painted(lines: Iterable[Line], *, colour: bool) -> str:
    """Return lines as text, each with its line feed."""
    return "".join(f"{painted_line(line, colour=colour)}\n" for line in lines)


def painted_line(line: Line, *, colour: bool) -> str:
    """Return a line as text without a line feed; blanks have no style."""
    return "".join(
        _styled(span.text, span.style) if colour else span.text for span in line
    ).rstrip()


def view(stream: TextIO) -> View:
    """Return the room on the terminal behind a stream, or an endless roll where there is none."""
    if not stream.isatty():
        return View(ascii_only=ascii_only(stream))
    size = shutil.get_terminal_size()
    return View(size.columns or 80, size.lines or 24, ascii_only=ascii_only(stream))


def _styled(text: str, style: str) -> str:
    codes = ";".join(str(_CODES[word]) for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text.strip() else text
