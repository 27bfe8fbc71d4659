"""A page read back as a browser would: its elements, their ids, and the words of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VOID = frozenset({"meta", "link", "input"})
APART = frozenset({"td", "th", "dt", "dd", "p", "li", "tr", "h1", "h2", "h3", "div", "caption"})


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    @property
    def words(self) -> str:
        """The text with single spaces, cells and lines apart."""
        return " ".join(self.text.split())

    @property
    def text(self) -> str:
        texts = (child if isinstance(child, str) else child.text for child in self.children)
        text = "" if self.tag == "button" else "".join(texts)
        return f" {text} " if self.tag in APART else text

    def all(self, tag: str = "") -> Iterator[Element]:
        for child in self.children:
            if isinstance(child, Element):
                if not tag or child.tag == tag:
                    yield child
                yield from child.all(tag)


class Page(HTMLParser):
    """The tree of a page; ``wrong`` has what is closed that was not open, or the other way."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.wrong = list[str]()
        self.root = self._open = Element("", {})
        self.feed(text)
        self.close()
        if self._open is not self.root:
            self.wrong.append(self._open.tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f"{tag}: an attribute twice")
        made = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.children.append(made)
        if tag not in VOID:
            self._open = made

    def handle_endtag(self, tag: str) -> None:
        if self._open.tag != tag or self._open.parent is None:
            self.wrong.append(tag)
        else:
            self._open = self._open.parent

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)

    def all(self, tag: str = "") -> list[Element]:
        return list(self.root.all(tag))

    def __getitem__(self, id_: str) -> Element:
        (element,) = (each for each in self.all() if each.attributes.get("id") == id_)
        return element

    def __contains__(self, id_: str) -> bool:
        return any(each.attributes.get("id") == id_ for each in self.all())

    def rows(self, id_: str) -> list[list[str]]:
        """The cells of every row below an element, headings left out."""
        return [
            [cell.words for cell in row.all() if cell.tag in {"td", "th"}]
            for body in self[id_].all("tbody")
            for row in body.all("tr")
        ]

    def facts(self, id_: str) -> dict[str, str]:
        """The names and values below an element."""
        pairs = {}
        for name in self[id_].all("dt"):
            assert name.parent is not None
            (value,) = name.parent.all("dd")
            pairs[name.words] = value.words
        return pairs
