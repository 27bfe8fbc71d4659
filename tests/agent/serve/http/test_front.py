"""How the page is served: one rendering for everybody, nothing for who has it already."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass, field, replace

import pytest
from starlette.requests import Request

from gpud.agent.serve.http import assets
from gpud.agent.serve.http.front import Front, own
from gpud.agent.state.snapshot import Snapshot
from gpud.core.clock import Instant
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.test_web import ask, served

FILES = assets.load()


@dataclass
class World:
    """A snapshot that is read, and a clock; both are set by hand."""

    snapshot: Snapshot = field(default_factory=snapshots.full)
    mono_s: float = snapshots.NOW.mono_s
    reads: int = 0

    def read(self) -> Snapshot:
        self.reads += 1
        return self.snapshot

    def now(self) -> Instant:
        ahead_s = self.mono_s - snapshots.NOW.mono_s
        return Instant(snapshots.NOW.wall_s + ahead_s, self.mono_s)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def front(world: World) -> Front:
    return Front(world.read, parse(None, {}), world.now, FILES, "laptop")


def get(front: Front, **headers: str) -> tuple[int, dict[str, str], bytes]:
    given = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": given})
    answer = asyncio.run(front.answer(request))
    return answer.status_code, dict(answer.headers), bytes(answer.body)


def test_fifty_viewers_of_one_second_are_one_rendering(front: Front, world: World) -> None:
    bodies = {get(front)[2] for _ in range(50)}
    assert (len(bodies), world.reads) == (1, 1)
    world.mono_s += 1.0
    get(front)
    assert world.reads == 2


def test_a_clock_that_goes_back_is_no_reason_to_serve_the_past(front: Front, world: World) -> None:
    get(front)
    world.mono_s -= 50
    get(front)
    assert world.reads == 2


def test_who_has_the_page_gets_nothing_until_it_is_another(front: Front, world: World) -> None:
    code, headers, body = get(front)
    assert (code, headers["content-type"]) == (200, "text/html; charset=utf-8")
    tag = headers["etag"]
    code, headers, nothing = get(front, if_none_match=f'"x", W/{tag}')
    assert (code, headers["etag"], nothing) == (304, tag, b"")
    world.snapshot = replace(snapshots.full(), version="9.9")
    world.mono_s += 2
    code, headers, other = get(front, if_none_match=tag)
    assert code == 200
    assert headers["etag"] != tag
    assert other != body


def test_what_is_packed_is_the_same_page_under_another_tag(front: Front) -> None:
    _, plain, body = get(front)
    _, packed, small = get(front, accept_encoding="gzip, br")
    assert packed["content-encoding"] == "gzip"
    assert gzip.decompress(small) == body
    assert len(small) < len(body) / 3
    assert plain["etag"] != packed["etag"]
    assert plain["vary"] == packed["vary"] == "accept-encoding"
    assert get(front, accept_encoding="gzip", if_none_match=plain["etag"])[0] == 304


def test_the_page_names_its_machine_its_settings_and_its_files(front: Front) -> None:
    page = get(front)[2].decode()
    assert "<title>Failed: gpud on laptop</title>" in page
    assert ">/etc/gpud/gpud.toml</code>" in page
    assert f'href="{FILES.href("page.css")}"' in page
    assert f'src="{FILES.href("main.js")}"' in page


def test_the_page_tells_what_the_process_takes() -> None:
    taken = own()
    assert taken.rss_bytes is not None
    assert 1 << 20 < taken.rss_bytes < 1 << 34
    assert taken.cpu_s is not None
    assert taken.cpu_s > 0


def test_over_the_wire_it_has_the_headers_of_every_answer() -> None:
    with served(snapshots.full()) as port:
        code, headers, body = ask(port, "/")
        again, _, _ = ask(port, "/", if_none_match=headers["etag"])
    assert (code, again) == (200, 304)
    assert b"<h1" in body
    assert "script-src 'self'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
