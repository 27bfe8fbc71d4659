"""Page, metrics, health, files and runbooks over a real socket."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.serve.http import runbooks
from gpud.agent.serve.http.app import STATIC, static_files
from gpud.agent.serve.http.service import bind
from gpud.core.errors import ListenError
from tests import snapshots
from tests.agent.serve.http.armed import ask, served
from tests.show.reading import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpud.agent.state.snapshot import Snapshot

FILES = static_files()
OURS = sorted(name for name in FILES if "/" not in name)
PAGES = Path(__file__).resolve().parents[4] / "docs/runbooks"
RUNBOOKS = sorted(page.stem for page in PAGES.iterdir())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(snapshots.full()) as number:
        yield number


def test_loopback_names_are_served_and_others_refused(port: int) -> None:
    for host in ("localhost:9945", "127.0.0.1", "[::1]:9945"):
        assert ask(port, "/-/healthy", host=host)[0] == 200
    for path in ("/api/v1/status", "/runbooks/GpudDown"):
        code, _, body = ask(port, path, host="attacker.example")
        assert code == 421
        assert b"gpud_" not in body


@pytest.mark.parametrize(
    ("make", "ready", "colour"),
    [(snapshots.bare, 503, "1a7f37"), (snapshots.full, 200, "b3261e")],
)
def test_agent_is_ready_once_the_first_probe_has_ended_and_has_an_icon_of_its_state(
    make: Callable[[], Snapshot], ready: int, colour: str
) -> None:
    """Chromium asks for it with a runbook and with /metrics, not with the page, which has one."""
    with served(make()) as number:
        assert ask(number, "/-/ready")[0] == ready
        assert ask(number, "/-/healthy")[0] == 200
        code, headers, body = ask(number, "/favicon.ico")
    assert (code, headers["content-type"]) == (200, "image/svg+xml")
    assert f"fill='#{colour}'" in body.decode()


def test_address_that_is_taken_or_not_ours_is_named() -> None:
    with bind("127.0.0.1", 0) as listener:
        # asyncio turns Nagle's algorithm off where the listener says that it speaks TCP.
        assert listener.proto == socket.IPPROTO_TCP
    with socket.create_server(("127.0.0.1", 0)) as holder:
        number = holder.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127.0.0.1:{number} is taken by ") as caught:
            bind("127.0.0.1", number)
    assert caught.value.reason == "address_in_use"
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1") as caught:
        bind("192.0.2.1", 0)
    assert caught.value.reason == "cannot_listen"


# --- /static/ ------------------------------------------------------------------------------------


def test_vendored_files_are_the_published_ones() -> None:
    (sums,) = STATIC.rglob("SHA256SUMS")
    listed = dict(line.split("  ")[::-1] for line in sums.read_text().splitlines())
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sums.parent.iterdir()
        if path != sums
    }
    assert digests == listed
    assert "LICENSE" in digests


def test_every_file_is_sent_with_its_type_and_asked_again_each_time(port: int) -> None:
    for name, file in FILES.items():
        code, headers, body = ask(port, f"/static/{name}")
        assert (code, body, headers["cache-control"]) == (200, file.plain, "no-cache")
        assert headers["content-type"] == file.media_type


@pytest.mark.parametrize("name", OURS)
def test_own_file_is_short_names_no_origin_and_imports_what_there_is(name: str) -> None:
    text = (STATIC / name).read_text()
    assert len(text.splitlines()) <= (250 if name.endswith(".js") else 1000)
    assert not re.search(r"https?:|//\w+\.\w+/|@import", text)
    code = re.sub(r"^\s*(//|/?\*).*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"\beval\(|Function\(|HTML\b|document\.write|setAttribute\(.on", code)
    for link in re.findall(r'^import .*?"\./(.*?)"', text, re.MULTILINE):
        assert link in FILES


# --- /runbooks/ ----------------------------------------------------------------------------------


def links(page: Page) -> list[str]:
    return [element.attributes["href"] for element in page.all() if "href" in element.attributes]


def test_list_of_runbooks_leads_to_every_page(port: int) -> None:
    assert runbooks.folder() == PAGES
    for path in ("/runbooks", "/runbooks/"):
        code, headers, body = ask(port, path)
        assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
        pages = [link for link in links(Page(body.decode())) if re.fullmatch("/runbooks/.+", link)]
        assert pages == [f"/runbooks/{name}" for name in RUNBOOKS]


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_is_shown_whole_without_its_markdown(port: int, name: str) -> None:
    page = Page(ask(port, f"/runbooks/{name}")[2].decode())
    assert page.wrong == []
    text = (PAGES / f"{name}.md").read_text()
    marks = r"`|(?<!\w)\*|\*(?!\w)|^(#+|-) |\[(\w+)\]\(\w+\.md\)"
    words = re.sub(marks, r"\2", text, flags=re.MULTILINE).split()
    assert page["main"].words.split() == words
    for link in links(page):
        assert ask(port, link)[0] == 200


@pytest.mark.parametrize(
    "name", ["GpudNothing", "..%2Fmetrics", "%2e%2e%2fmetrics.md", "Gpud%00Down", "%1b[31m"]
)
def test_unknown_runbook_is_refused_in_plain_words(port: int, name: str) -> None:
    code, headers, body = ask(port, f"/runbooks/{name}")
    assert (code, headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert body.startswith(b"there is no ")
    assert b"\x1b" not in body


def test_markup_in_a_runbook_is_shown_as_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> `<b>` *<i>* [x](javascript:alert(1)) & \"'\n- <img src=x>"
    (tmp_path / "GpudEvil.md").write_text(f"# T\n\n{hostile}\n")
    (tmp_path / "not a name.md").write_text("x")
    with served(snapshots.bare(), runbooks.routes(tmp_path)) as number:
        page = Page(ask(number, "/runbooks/GpudEvil")[2].decode())
        assert ask(number, "/runbooks/")[2].count(b"<li>") == 1
    assert set(links(page)) == {"/static/page.css", "/", "/runbooks/"}
    for text in ("<script>alert(1)</script>", "<b>", "<i>", "[x](javascript", "<img src=x>"):
        assert text in page["main"].words
