"""/api/v1/openapi.json: that it tells of every path, and the truth of every answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.routing import Route

from gpud.agent.history.store import History
from gpud.agent.serve.api import openapi
from gpud.agent.serve.api.routes import routes
from gpud.agent.serve.http.access import LONGEST_TARGET
from gpud.agent.serve.http.app import app
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.api.described import Described
from tests.agent.serve.api.everything import everything
from tests.agent.serve.http.test_web import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("/api/", "/metrics", "/-/")
QUESTIONS = (
    "/api/v1/status",
    "/api/v1/probes",
    "/api/v1/openapi.json",
    "/api/v1/history?probe=launch",
    "/api/v1/history?probe=launch&gpu=0&mode=submit&points=7",
    "/api/v1/history?probe=launch&since=2000-01-01T00:00:00Z&until=2000-03-01T00:00:00Z",
    "/api/v1/history?probe=lunch",
    "/api/v1/history",
    "/api/v1/events",
    "/api/v1/events?kind=gpus,kernel&limit=1",
    "/api/v1/events?since=2&until=1",
    "/api/v1/alerts",
    "/api/v1/alerts?since=0",
    "/api/v1/alerts?form=1",
    "/metrics",
    "/-/healthy",
    "/-/ready",
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with everything(tmp_path_factory.mktemp("state")) as number:
        yield number


@pytest.fixture(scope="module")
def described(port: int) -> Described:
    return Described(json.loads(ask(port, openapi.PATH)[2]))


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_answer_is_as_it_is_described(port: int, described: Described, question: str) -> None:
    code, headers, body = ask(port, question)
    assert described.differences(question.partition("?")[0], code, headers, body) == []


def test_what_is_not_known_yet_is_described_too(tmp_path: Path, described: Described) -> None:
    with everything(tmp_path, snapshots.bare()) as number:
        for path in ("/api/v1/status", "/api/v1/probes", "/api/v1/alerts", "/-/ready"):
            assert described.differences(path, *ask(number, path)) == []


@pytest.mark.parametrize(
    ("code", "query", "headers"),
    [
        (403, "", {"origin": "https://attacker.example"}),
        (413, "", {"content_length": "9"}),
        (414, "?probe=" + "x" * LONGEST_TARGET, {}),
        (421, "", {"host": "attacker.example"}),
        (431, "", {f"x-{number}": "x" for number in range(150)}),
    ],
)
def test_what_is_refused_at_the_door_is_described(
    port: int, described: Described, code: int, query: str, headers: dict[str, str]
) -> None:
    for path in ("/api/v1/status", "/api/v1/history", "/metrics"):
        answer = ask(port, f"{path}{query}", **headers)
        assert answer[0] == code
        assert described.differences(path, *answer) == []


def test_a_history_that_cannot_be_read_is_described(tmp_path: Path, described: Described) -> None:
    with served(snapshots.bare(), _questions(tmp_path)) as number:
        for question in ("/api/v1/events", "/api/v1/alerts?since=0", "/api/v1/history?probe=event"):
            code, headers, body = ask(number, question)
            assert (code, headers["retry-after"]) == (503, "1")
            path = question.partition("?")[0]
            assert described.differences(path, code, headers, body) == []


def test_every_route_for_programs_is_described_and_nothing_else_is(
    tmp_path: Path, described: Described
) -> None:
    settings = parse(None, {})
    collector = SnapshotCollector(snapshots.bare, settings, lambda: snapshots.NOW)
    more = _questions(tmp_path)
    application = app(snapshots.bare, settings, collector, lambda: snapshots.NOW, more)
    routes = [route for route in application.routes if isinstance(route, Route)]
    assert {route.path for route in routes if route.path.startswith(PROGRAMS)} == set(
        described.paths()
    )
    assert all(route.methods == {"GET", "HEAD"} for route in routes)


def test_every_parameter_is_described_with_its_limits(described: Described) -> None:
    told = described.document["paths"]["/api/v1/history"]["get"]["parameters"]
    limits = {parameter["name"]: parameter["schema"] for parameter in told}
    assert list(limits) == ["probe", "mode", "gpu", "since", "until", "points"]
    assert limits["points"] == {"type": "integer", "minimum": 1, "maximum": 2000, "default": 300}
    assert limits["mode"]["type"] == "array"
    assert [parameter["name"] for parameter in told if parameter["required"]] == ["probe"]


def test_the_description_says_that_every_field_is_there(described: Described) -> None:
    for name, schema in described.document["components"]["schemas"].items():
        if "properties" in schema:
            assert schema["required"] == list(schema["properties"]), name


def test_a_client_that_has_the_answer_already_is_told_so(port: int, described: Described) -> None:
    for path in ("/api/v1/openapi.json", "/api/v1/probes", "/api/v1/events"):
        tag = ask(port, path)[1]["etag"]
        code, headers, body = ask(port, path, if_none_match=tag)
        assert (code, headers["etag"]) == (304, tag)
        assert described.differences(path, code, headers, body) == []


def test_a_difference_is_found(described: Described) -> None:
    status = json.loads(_status())
    for wrong in (
        {**status, "more": 1},
        {**status, "written_s": "now"},
        {name: value for name, value in status.items() if name != "state"},
        {**status, "health": {"http": {**status["health"]["store"], "level": 7}}},
    ):
        assert described.differences(
            "/api/v1/status", 200, {"content-type": "application/json"}, json.dumps(wrong).encode()
        )
    assert described.differences("/api/v1/status", 418, {}, b"")


def _status() -> bytes:
    with served(snapshots.full()) as number:
        return ask(number, "/api/v1/status")[2]


def _questions(home: Path) -> list[Route]:
    settings = parse(None, {}, home=str(home))
    kept = History(Path(settings.state_dir))
    return routes(snapshots.bare, kept, settings, time.time)
