"""The pages of the alerts, asked for as a browser and a terminal do."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http import runbooks
from tests import snapshots
from tests.agent.serve.http.test_web import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = Path(__file__).resolve().parents[4] / "docs/runbooks"
NAMES = sorted(page.stem for page in PAGES.iterdir())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(snapshots.bare()) as number:
        yield number


class Shape(HTMLParser):
    """The text of a page, its links, and whether what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.style, self.links = "", "", list[str]()
        self.open, self.wrong = list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "link":
            self.style = dict(attrs)["href"] or ""
            return
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag in {"h1", "h2", "p", "ul", "li", "header", "main"}:
            self.text += "\n"
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_list_leads_to_every_page(port: int) -> None:
    for path in ("/runbooks", "/runbooks/"):
        code, headers, body = ask(port, path)
        assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
        links = [link for link in Shape(body.decode()).links if link.count("/") == 2]
        assert [link for link in links if link != "/runbooks/"] == [f"/runbooks/{n}" for n in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_shown_whole_and_nothing_of_its_markdown_is_left(port: int, name: str) -> None:
    code, headers, body = ask(port, f"/runbooks/{name}")
    assert code == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    shape = Shape(body.decode())
    assert (shape.open, shape.wrong) == ([], [])
    left = re.sub(
        r"`|(?<!\w)\*|\*(?!\w)|^(#+|-) |\[(\w+)\]\(\w+\.md\)",
        r"\2",
        _text(name),
        flags=re.MULTILINE,
    )
    assert _words(left) == _words(shape.text.partition("runbooks")[2])
    assert not re.search(r"[`*]|\]\(|^[#-]", shape.text, re.MULTILINE)
    for link in (*shape.links, shape.style):
        assert ask(port, link)[0] == 200


def test_a_terminal_gets_the_text_as_it_was_written(port: int) -> None:
    code, headers, body = ask(port, "/runbooks/GpudDown.md")
    assert (code, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert body.decode() == _text("GpudDown")


@pytest.mark.parametrize(
    "name",
    ["GpudNothing", "..%2Fmetrics", "%2e%2e%2fmetrics.md", "Gpud%00Down", "x" * 5000, "%1b[31m"],
)
def test_what_is_no_page_is_answered_in_plain_words(port: int, name: str) -> None:
    code, headers, body = ask(port, f"/runbooks/{name}")
    assert (code, headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert body.startswith(b"there is no ")
    assert len(body) < 200
    assert b"\x1b" not in body


def test_a_foreign_host_gets_no_page_and_nothing_can_be_changed(port: int) -> None:
    assert ask(port, "/runbooks/GpudDown", host="attacker.example")[0] == 421
    for method in ("POST", "PUT", "DELETE"):
        assert ask(port, "/runbooks/GpudDown", method=method)[0] == 405


def test_a_page_that_holds_markup_is_shown_as_it_is_written(tmp_path: Path) -> None:
    hostile = (
        "<script>alert(1)</script> `<b>` *<i>* [x](javascript:alert(1)) & \"'\n- <img src=x>\n"
    )
    (tmp_path / "GpudEvil.md").write_text(f"# T\n\n{hostile}")
    (tmp_path / "not a name.md").write_text("x")
    with served(snapshots.bare(), runbooks.routes("/static/page.css", tmp_path)) as number:
        page = ask(number, "/runbooks/GpudEvil")[2].decode()
        assert ask(number, "/runbooks/")[2].count(b"<li>") == 1
    shape = Shape(page)
    assert set(shape.links) == {"/", "/runbooks/"}
    assert "script" not in shape.open
    for shown in (
        "<script>alert(1)</script>",
        "<b>",
        "<i>",
        "[x](javascript:alert(1))",
        "<img src=x>",
    ):
        assert shown in shape.text


def test_in_a_checkout_the_pages_are_those_that_are_edited() -> None:
    assert runbooks.folder() == PAGES


def _text(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def _words(text: str) -> list[str]:
    return text.split()
