"""HTML as values: what is not markup already becomes harmless text on its way in. Pure.

An element is a call, ``el("td", name, class_="n")``. Text is cut, control and direction-changing
characters are written out, and then it is escaped; only ``Html`` passes as it is, so what comes
from outside cannot become markup by being forgotten.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias

from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST: Final = 2000
"""Characters of one text that are shown: a driver may say a megabyte."""
_VOID: Final = frozenset({"input", "link", "meta"})
_SPECIAL: Final = re.compile("[&<>\"']")


class Html(str):
    """Markup of ours."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
"""``Html``, a text, nothing, or several of them."""
Attribute: TypeAlias = "str | int | float | bool | None"
"""True is an attribute without a value; False and None leave it out."""


def text(words: str, most: int = LONGEST) -> Html:
    """Make a text harmless, and no longer than ``most`` characters."""
    if not (len(words) <= most and words.isprintable()):
        words = plain(words, most)
    return Html(escape(words) if _SPECIAL.search(words) else words)


def plain(words: str, most: int = LONGEST) -> str:
    """Cut a foreign text and write out what would not be seen; half a character is a question."""
    if len(words) > most:
        words = f"{words[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    return escaped(words.encode(errors="replace").decode())


def joined(*children: Child) -> Html:
    """Put what may be Html, text or several of them into one piece of markup."""
    return Html("".join([each if type(each) is Html else _shown(each) for each in children]))


def el(tag: str, *children: Child, **attributes: Attribute) -> Html:
    """Write one element. ``class_`` is class, ``data_moment`` is data-moment."""
    written = "".join([_attribute(name, value) for name, value in attributes.items()])
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    # A page is thousands of these calls: what needs no second one is not given one.
    inner = "".join([each if type(each) is Html else _shown(each) for each in children])
    return Html(f"<{tag}{written}>{inner}</{tag}>")


def _attribute(name: str, value: Attribute) -> str:
    if type(value) is str:
        return f' {_spelled(name)}="{text(value)}"'
    if value is None or value is False:
        return ""
    return f" {_spelled(name)}" if value is True else f' {_spelled(name)}="{text(str(value))}"'


@cache
def _spelled(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _shown(child: Child) -> str:
    if isinstance(child, str):
        return child if type(child) is Html else text(child)
    return "" if child is None else "".join([_shown(each) for each in child])
