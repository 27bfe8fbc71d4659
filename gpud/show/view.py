"""Lines of styled words, and the room there is for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Final, NamedTuple

from gpud.core.text import escaped, rezoned
from gpud.show.units import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLAIN: Final = ""
HEAD, QUIET, GOOD, UNSURE, BAD = "bold", "dim", "green", "yellow", "bold red"
"""Styles, by the names of ``gpud.term.paint``."""
PIPED: Final = 100
"""Columns where nobody looks at a terminal; a sentence that quotes a driver is left as it is."""
NARROWEST: Final = 20
ASCII: Final = str.maketrans({"µ": "u", "≤": "<=", "°": "", "…": "~"})
HARD: Final = "\xa0"


class Span(NamedTuple):
    """Words of one style."""

    text: str
    style: str = PLAIN


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The room to draw in. ``height`` None: there is no end to it, and nothing is left out."""

    width: int = PIPED
    height: int | None = None
    ascii_only: bool = False


def line(*spans: Span | str) -> Line:
    """Make a line: no control character of a foreign word is left in it, no time of UTC either."""
    told = (one if isinstance(one, Span) else Span(one) for one in spans)
    return tuple(Span(rezoned(escaped(one.text), moment), one.style) for one in told)


def text(drawn: Line) -> str:
    """Give a line without its styles."""
    return "".join(one.text for one in drawn).rstrip()


def narrowed(drawn: Sequence[Line], view: View) -> list[Line]:
    """Break what is wider than a terminal, below its own indent, and leave ASCII where it must be.

    A line of several styles keeps them where it fits, and the first one's style where it does not.
    """
    shown: list[Line] = []
    for one in drawn:
        kept = (
            tuple(Span(s.text.translate(ASCII), s.style) for s in one) if view.ascii_only else one
        )
        whole = text(kept)
        if view.height is None or len(whole) <= view.width:
            shown.append(kept)
            continue
        indent = " " * min(_indent(whole), view.width // 2)
        style = next((s.style for s in kept if s.text.strip()), PLAIN)
        parts = wrap(whole, max(view.width, NARROWEST), subsequent_indent=indent)
        shown += [(Span(part, style),) for part in parts]
    return shown


def listed(head: str, words: Iterable[str], view: View, style: str = PLAIN) -> list[Line]:
    """Write words with commas behind a head, over as many lines as it takes; none for none."""
    joined = ", ".join(word.replace(" ", HARD) for word in words)  # a figure stays with its unit
    if not joined:
        return []
    start = f"  {head} " if head else "  "
    broken = wrap(
        escaped(joined),
        max(view.width, len(start) + NARROWEST),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    first, *rest = [one.replace(HARD, " ") for one in broken]
    return [
        (Span(first[: len(start)], QUIET), Span(first[len(start) :], style)),
        *((Span(one, style),) for one in rest),
    ]


def _indent(whole: str) -> int:
    """Give where the words of a line begin to mean something: behind its label, if it has one."""
    body = whole.lstrip()
    start = len(whole) - len(body)
    label, gap, _ = body.partition("  ")
    if gap and len(label) < NARROWEST // 2:
        behind = body[len(label) :]
        return start + len(label) + len(behind) - len(behind.lstrip())
    return start + 2
