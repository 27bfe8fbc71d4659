"""Page, metrics, health, files and runbooks over a real socket, and how often each is rendered."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
import socket
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily
from starlette.requests import Request

from gpud.agent.serve.http import runbooks
from gpud.agent.serve.http.app import STATIC, static_files
from gpud.agent.serve.http.response import CACHE_S
from gpud.agent.serve.http.service import bind
from gpud.agent.serve.http.views import MetricsView, PageView
from gpud.agent.serve.metrics.collector import Format, SnapshotCollector
from gpud.agent.state.snapshot import Snapshot
from gpud.agent.telemetry.answers import Telemetry
from gpud.core.clock import Instant
from gpud.core.errors import ListenError
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.armed import ask, served
from tests.agent.serve.metrics.scraping import OPENMETRICS, settings
from tests.events import altered, child_spawned
from tests.show.reading import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from gpud.agent.serve.metrics.collector import Texts
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


# --- rendered once for all clients while nothing has changed ---


@dataclass
class World:
    """A snapshot and a clock, both set by hand; counts how often they are read and collected."""

    snapshot: Snapshot = field(default_factory=snapshots.full)
    mono_s: float = snapshots.NOW.mono_s
    reads: int = 0
    collected: int = 0

    def read(self) -> Snapshot:
        self.reads += 1
        return self.snapshot

    def now(self) -> Instant:
        ahead_s = self.mono_s - snapshots.NOW.mono_s
        return Instant(snapshots.NOW.wall_s + ahead_s, self.mono_s)

    def collect(self) -> Iterator[Metric]:
        self.collected += 1
        yield GaugeMetricFamily("collected", "how often " * 100, value=self.collected)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def page(world: World) -> PageView:
    return PageView(world.read, parse(None, {}), world.now, "laptop")


@pytest.fixture
def metrics(world: World) -> MetricsView:
    return MetricsView(world.read, world, world.now)


def get(view: PageView | MetricsView, **headers: str) -> tuple[int, dict[str, str], bytes]:
    pairs = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": pairs})
    answer = asyncio.run(view.answer(request))
    return answer.status_code, dict(answer.headers), bytes(answer.body)


def test_page_is_rendered_once_a_second_also_when_the_clock_goes_back(
    page: PageView, world: World
) -> None:
    bodies = {get(page)[2] for _ in range(50)}
    assert (len(bodies), world.reads) == (1, 1)
    for step_s in (1.0, -50.0):
        world.mono_s += step_s
        world.reads = 0
        get(page)
        assert world.reads == 1


def test_page_keeps_its_tag_until_it_changes(page: PageView, world: World) -> None:
    code, headers, body = get(page)
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    tag = headers["etag"]
    assert get(page, if_none_match=f'"x", W/{tag}')[::2] == (304, b"")
    assert gzip.decompress(get(page, accept_encoding="gzip, br")[2]) == body
    world.snapshot = altered(snapshots.full(), version="9.9")
    world.mono_s += 2
    code, headers, other = get(page, if_none_match=tag)
    assert (code, headers["etag"] != tag, other != body) == (200, True, True)


def test_page_names_its_machine_and_its_settings(page: PageView) -> None:
    text = get(page)[2].decode()
    assert "<title>Failed: gpud on laptop</title>" in text
    assert ">/etc/gpud/gpud.toml</code>" in text


def test_twenty_scrapes_at_once_are_written_once_until_there_is_something_new(
    metrics: MetricsView, world: World
) -> None:
    bodies = {get(metrics)[2] for _ in range(20)} | {
        gzip.decompress(get(metrics, accept_encoding="gzip")[2]) for _ in range(20)
    }
    assert (len(bodies), world.collected) == (1, 1)
    world.snapshot = copy(world.snapshot)
    get(metrics)
    assert world.collected == 2, "there is a new snapshot"
    for step_s, collected in ((CACHE_S - 0.01, 2), (0.02, 3)):
        world.mono_s += step_s
        get(metrics)
        assert world.collected == collected


def test_each_format_is_written_as_itself(metrics: MetricsView) -> None:
    for _ in range(2):
        for accept, kind, end in (
            ("", "text/plain", b"collected"),
            (OPENMETRICS, "application/openmetrics-text", b"# EOF\n"),
        ):
            _, plain, body = get(metrics, accept=accept)
            _, packed, small = get(metrics, accept=accept, accept_encoding="gzip")
            assert plain["content-type"].startswith(kind)
            assert packed["content-type"] == plain["content-type"]
            assert packed["content-encoding"] == "gzip"
            assert end in body
            assert body.endswith(b"# EOF\n") == (accept == OPENMETRICS)
            assert gzip.decompress(small) == body
            assert plain["vary"] == packed["vary"] == "accept, accept-encoding"


def spawned() -> Snapshot:
    return child_spawned()(snapshots.full())


def test_reused_text_is_that_of_a_first_scrape(world: World) -> None:
    options = settings("dcgm")
    view = MetricsView(world.read, SnapshotCollector(world.read, options, world.now), world.now)
    silent = altered(snapshots.full(), telemetry=Telemetry())
    full, bare = snapshots.full(), snapshots.bare()
    for snapshot in (full, bare, full, silent, spawned(), full):
        world.snapshot = snapshot
        world.mono_s += 30
        for accept in ("", OPENMETRICS):
            fresh = Format.of(accept).encoded(SnapshotCollector(world.read, options, world.now))
            assert get(view, accept=accept)[2] == fresh


def test_family_that_did_not_change_is_not_written_again(world: World) -> None:
    texts: Texts = {}
    collector = SnapshotCollector(world.read, settings(), world.now)
    first = Format.TEXT.encoded(collector, texts)
    before = dict(texts)
    assert Format.TEXT.encoded(collector, texts) == first
    assert len(texts) > 50
    world.snapshot = spawned()
    assert Format.TEXT.encoded(collector, texts) != first
    written = [name for name, text in texts.items() if text is not before[name]]
    assert written == ["gpud_children_spawned"]
