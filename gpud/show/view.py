"""Lines of styled words, and the room there is for them. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.text import escaped, rezoned
from gpud.units import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN: Final = ""
HEAD, QUIET, GOOD, UNSURE, BAD = "bold", "dim", "green", "yellow", "bold red"
"""Styles, by the names of ``gpud.output``."""
PIPED: Final = 100
"""Columns of a sentence where nobody looks at a terminal."""
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
NARROWEST: Final = 20
BARS: Final = "▁▂▃▄▅▆▇█"
ASCII: Final = str.maketrans(
    {"µ": "u", "≤": "<=", "°": "", "…": "~", "\N{EN DASH}": "-", "±": "+-", "→": "->"}
    | dict(zip(BARS, "_.-~=+*#", strict=True))
)


class Span(NamedTuple):
    """Words of one style."""

    text: str
    style: str = PLAIN


Line = tuple[Span, ...]


class View(NamedTuple):
    """The room to draw in. ``height`` None: there is no end to it, and nothing is left out.

    ``details``: also what else only the page has room for.
    """

    width: int = PIPED
    height: int | None = None
    ascii_only: bool = False
    details: bool = False


def line(*spans: Span | str) -> Line:
    """Make a line: no control character of a foreign word is left in it, no time of UTC either."""
    styled = (span if isinstance(span, Span) else Span(span) for span in spans)
    return tuple(Span(rezoned(escaped(span.text), moment), span.style) for span in styled)


def text(drawn: Line) -> str:
    """Give a line without its styles."""
    return "".join(span.text for span in drawn).rstrip()


def narrowed(drawn: Sequence[Line], view: View) -> list[Line]:
    """Break what is too wide, below its own indent, and leave ASCII where it must be.

    In a pipe rows of tables stay whole. An address stays beside its name. A line of several styles
    keeps them where it fits, and the first one's style where it does not.
    """
    shown: list[Line] = []
    for each in drawn:
        spans = each
        if view.ascii_only:
            spans = tuple(Span(span.text.translate(ASCII), span.style) for span in each)
        whole = text(spans)
        row = view.height is None and "  " in whole.strip()  # of a table
        if row or len(whole) <= view.width:
            shown.append(spans)
            continue
        indent = " " * min(len(whole) - len(whole.lstrip()) + 2, view.width // 2)
        style = next((span.style for span in spans if span.text.strip()), PLAIN)
        together = whole.replace(" http", f"{NO_BREAK}http")
        width = max(view.width, NARROWEST)
        parts = wrap(together, width, subsequent_indent=indent, break_on_hyphens=False)
        shown += [(Span(part.replace(NO_BREAK, " "), style),) for part in parts]
    return shown
