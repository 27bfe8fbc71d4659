"""What holds for every answer of the API: tags, compression, methods, and errors as JSON."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from gpud.agent.serve.api import status
from gpud.core.clock import Instant
from tests import snapshots
from tests.agent.serve.api.everything import everything
from tests.agent.serve.http.test_web import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

PATHS = (
    "/api/v1/openapi.json",
    "/api/v1/probes",
    "/api/v1/history?probe=launch&until=1900000000&since=1890000000",
    "/api/v1/events",
    "/api/v1/alerts?since=0",
    "/api/v1/status",
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with everything(tmp_path_factory.mktemp("home")) as number:
        yield number


@pytest.mark.parametrize("path", PATHS[:-1])
def test_an_answer_keeps_its_tag_while_nothing_has_changed(port: int, path: str) -> None:
    _, headers, body = ask(port, path)
    assert (headers["vary"], headers["cache-control"]) == ("accept-encoding", "no-cache")
    for known in (headers["etag"], f'"other", W/{headers["etag"]}', "*"):
        code, again, nothing = ask(port, path, if_none_match=known)
        assert (code, again["etag"], nothing) == (304, headers["etag"], b"")
    assert ask(port, path, if_none_match='"other"')[2] == body


def test_the_status_is_encoded_once_a_second_however_many_look_at_it() -> None:
    snapshot = snapshots.full()
    moments = [Instant(1.7e9 + after_s, 100.0 + after_s) for after_s in (0.0, 0.9, 1.0)]
    left = iter(moments)
    asked = Starlette(routes=[status.route(lambda: snapshot, lambda: next(left))])

    async def told() -> list[float]:
        transport = httpx.ASGITransport(asked)
        async with httpx.AsyncClient(transport=transport, base_url="http://gpud") as client:
            return [(await client.get(status.PATH)).json()["written_s"] for _ in moments]

    assert asyncio.run(told()) == [1.7e9, 1.7e9, 1.7e9 + 1]


@pytest.mark.parametrize("path", PATHS)
def test_who_reads_gzip_gets_the_same_in_less_under_a_tag_of_its_own(port: int, path: str) -> None:
    _, plain, body = ask(port, path)
    _, headers, packed = ask(port, path, accept_encoding="br;q=1.0, gzip;q=0.8, *;q=0.1")
    if len(body) < 1000:
        assert "content-encoding" not in headers
        return
    assert headers["content-encoding"] == "gzip"
    assert len(packed) < len(body) / 2
    if path != "/api/v1/status":
        assert gzip.decompress(packed) == body
        assert headers["etag"] != plain["etag"]
        assert ask(port, path, if_none_match=plain["etag"], accept_encoding="gzip")[0] == 304


@pytest.mark.parametrize("path", PATHS)
def test_the_head_of_an_answer_is_that_of_the_whole(port: int, path: str) -> None:
    code, headers, body = ask(port, path)
    alone = ask(port, path, method="HEAD")
    assert (alone[0], alone[2]) == (code, b"")
    if path != "/api/v1/status":
        for name in ("etag", "content-type", "content-length"):
            assert alone[1][name] == headers[name]
    assert len(body) == int(headers["content-length"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/api/v1/status", "/api/v1/history?probe=launch"])
def test_another_method_is_refused_with_those_there_are(port: int, method: str, path: str) -> None:
    code, headers, body = ask(port, path, method=method)
    assert (code, set(headers["allow"].split(", "))) == (405, {"GET", "HEAD"})
    error = json.loads(body)["error"]
    assert (error["reason"], error["fix"]) == ("method_not_allowed", "use GET or HEAD")


@pytest.mark.parametrize(
    "path", ["/api/v1/nothing", "/api/v2/status", "/api/v1/status/", "/api/", "/api/%1b[31m"]
)
def test_what_is_not_below_the_api_is_said_as_json(port: int, path: str) -> None:
    code, headers, body = ask(port, path)
    assert (code, headers["content-type"]) == (404, "application/json")
    assert json.loads(body)["error"]["reason"] == "no_such_path"
    assert b"\x1b" not in body


@pytest.mark.parametrize("path", ["status", "probes", "openapi.json", "events", "alerts"])
def test_a_parameter_that_is_not_supported_is_refused_by_name(port: int, path: str) -> None:
    code, _, body = ask(port, f"/api/v1/{path}?callback=evil")
    error = json.loads(body)["error"]
    assert (code, error["reason"], error["parameter"]) == (400, "unknown_parameter", "callback")


def test_a_failure_of_ours_is_said_without_what_is_inside() -> None:
    async def fails(_: Request) -> Response:
        raise RuntimeError("/srv/secret")

    with served(snapshots.bare(), [Route("/api/v1/broken", fails)]) as number:
        code, headers, body = ask(number, "/api/v1/broken")
    assert (code, headers["content-type"]) == (500, "application/json")
    assert json.loads(body)["error"]["reason"] == "internal"
    assert b"secret" not in body
