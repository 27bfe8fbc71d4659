"""A page read back as a browser would: its elements, their ids, and the words of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from gpud.agent.serve import page
from gpud.agent.state import status
from gpud.show import document
from tests import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.state.snapshot import Snapshot

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
        return " ".join(self._said().split())

    def _said(self) -> str:
        said = "".join(one if isinstance(one, str) else one._said() for one in self.children)
        return f" {said} " if self.tag in APART else said

    def all(self, tag: str = "") -> Iterator[Element]:
        for one in self.children:
            if isinstance(one, Element):
                if not tag or one.tag == tag:
                    yield one
                yield from one.all(tag)

    def above(self) -> Iterator[Element]:
        if self.parent is not None:
            yield self.parent
            yield from self.parent.above()


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
        found = [one for one in self.all() if one.attributes.get("id") == id_]
        assert len(found) == 1, (id_, len(found))
        return found[0]

    def __contains__(self, id_: str) -> bool:
        return any(one.attributes.get("id") == id_ for one in self.all())

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
        for one in self[id_].all("dt"):
            assert one.parent is not None
            (value,) = one.parent.all("dd")
            pairs[one.words] = value.words
        return pairs


def view(snapshot: Snapshot) -> page.View:
    """What the page is made of, at the moment of the snapshots."""
    buckets = {
        (key.gpu, key.probe, sample.mode): sample.buckets
        for key, state in snapshot.measure.probes.items()
        for sample in state.samples
        if sample.buckets is not None
    }
    return page.View(
        document.read(status.document(snapshot, now=snapshots.NOW)),
        buckets,
        frozenset((key.gpu, key.probe) for key in snapshot.measure.probes),
        page.Own(54 << 20, 0.5),
        "laptop",
        "/etc/gpud/gpud.toml",
    )


def read(snapshot: Snapshot) -> Page:
    return Page(page.page(view(snapshot)))
