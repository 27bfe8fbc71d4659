"""Output of the verbs: harmless text, blocks, colour, and the terminal's abilities.

Five SGR codes are all the styles there are; rich, which wraps, measures and themes, takes 55 ms to
import.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from gpud.core.text import escaped
from gpud.show.view import ASCII, View, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpud.show.model import Block
    from gpud.show.view import Line

_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


def say(text: str, *, error: bool = False) -> None:
    """Print text that may quote a driver or Docker: no control character gets through."""
    print(escaped(text, lines=True), file=sys.stderr if error else sys.stdout, flush=True)


def drawn(block: Block, *, details: bool = False) -> str:
    """Draw a block: tables whole, however wide; with details what fits a terminal."""
    from gpud.show.text import lines

    room = View(sys.maxsize, ascii_only=ascii_only())
    if details:
        room = view()._replace(details=True)
    return painted(narrowed(lines([block], room), room), colour=False)


def plain(text: str) -> str:
    """Return text with the letters that a locale without UTF-8 lacks written in ASCII."""
    return text.translate(ASCII) if ascii_only() else text


def dumb() -> bool:
    """Return whether the terminal moves no cursor and shows no colour."""
    return os.environ.get("TERM", "dumb").lower() in {"", "dumb", "unknown"}


def ascii_only() -> bool:
    """Return whether block elements on stdout would not be seen as such.

    The locale counts beside the encoding: Python takes UTF-8 in the C locale too.
    """
    encoded = "utf" in (sys.stdout.encoding or "").lower()
    if not encoded or (sys.stdout.isatty() and dumb()):
        return True
    names = ["LC_ALL", "LC_CTYPE", "LANG"]
    if os.environ.get("LANG") == "C" and os.environ.get("LC_CTYPE") == "C.UTF-8":
        names.remove("LC_CTYPE")  # Python's own doing, by PEP 538
    locale = next(filter(None, map(os.environ.get, names)), "C.UTF-8")
    return "utf" not in locale.lower()


def coloured(when: str) -> bool:
    """Return whether to colour; "auto" is on a terminal that can, unless NO_COLOR is set."""
    if when != "auto":
        return when == "always"
    return sys.stdout.isatty() and not dumb() and not os.environ.get("NO_COLOR")


def painted(lines: Iterable[Line], *, colour: bool) -> str:
    """Return lines as text, each with its line feed; blanks have no style."""
    texts = ((_styled(*span) if colour else span.text for span in line) for line in lines)
    return "".join(f"{''.join(each).rstrip()}\n" for each in texts)


def view() -> View:
    """Return the room on the terminal, or an endless roll where stdout is none."""
    if not sys.stdout.isatty():
        return View(ascii_only=ascii_only())
    import shutil

    size = shutil.get_terminal_size()
    return View(size.columns or 80, size.lines or 24, ascii_only=ascii_only())


def _styled(text: str, style: str) -> str:
    codes = ";".join(str(_CODES[word]) for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text.strip() else text
