"""The description of the API: every path, every answer as described, and docs/api.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jsonschema
import pytest
from starlette.routing import Route

from gpud.agent.history.store import History
from gpud.agent.serve.api import openapi
from gpud.agent.serve.api.openapi import PATH
from gpud.agent.serve.http.access import LONGEST_TARGET
from gpud.agent.serve.http.app import app
from gpud.agent.serve.metrics.collector import SnapshotCollector
from gpud.agent.serve.refusals import ANSWERS
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.api.everything import everything
from tests.agent.serve.http.armed import ask, served

if TYPE_CHECKING:
    from collections.abc import Iterator


PROGRAMS = ("/api/", "/metrics", "/-/")
QUESTIONS = (
    "/api/v1/history?probe=launch&gpu=0&mode=submit&points=7",
    "/api/v1/history?probe=lunch",
    "/api/v1/telemetry?gpu=9",
    "/api/v1/history",
    "/api/v1/events?since=2&until=1",
    "/api/v1/alerts?form=1",
    "/api/v1/openapi.json?form=1",
)
PAGE = Path(__file__).resolve().parents[4] / "docs/api.md"
FIELDS = Path(__file__).with_name("fields.txt")


Described = dict[str, Any]
"""What /api/v1/openapi.json gives."""


def differences(
    described: Described, path: str, code: int, headers: dict[str, str], body: bytes
) -> list[str]:
    """Say what of an answer is not as described; nothing is as it should be."""
    answer = described["paths"][path]["get"]["responses"]["200" if code == 200 else "default"]
    media = headers["content-type"].partition(";")[0]
    if media not in answer["content"]:
        return [f"{path}: {media} is not described"]
    if media != "application/json":
        return []
    closed = {
        name: {"additionalProperties": False, **schema} if "properties" in schema else schema
        for name, schema in described["components"]["schemas"].items()
    }
    schema = {**answer["content"][media]["schema"], "components": {"schemas": closed}}
    judge = jsonschema.Draft202012Validator(schema)
    return [
        f"{path}: {error.json_path}: {error.message[:200]}"
        for error in judge.iter_errors(json.loads(body))
    ]


def examples() -> list[str]:
    """Give the path and query of every curl of the page."""
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("curl")]
    urls = [word for line in lines for word in shlex.split(line) if word.startswith("localhost:")]
    assert len(urls) == len(lines)
    parts = [urlsplit(f"http://{url}") for url in urls]
    return [f"{part.path}?{part.query}" if part.query else part.path for part in parts]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with everything(tmp_path_factory.mktemp("home")) as number:
        yield number


@pytest.fixture(scope="module")
def described(port: int) -> Described:
    document: Described = json.loads(ask(port, openapi.PATH)[2])
    return document


def test_version_grows_with_each_field_that_is_added_and_no_field_goes(
    request: pytest.FixtureRequest,
) -> None:
    made = openapi.document()
    version, schemas = made["info"]["version"], made["components"]["schemas"]
    fields = {
        f"{name}.{field}" for name in schemas for field in schemas[name].get("properties", ())
    }
    before = FIELDS.read_text().split()
    assert set(before[1:]) <= fields, "fields are gone"
    assert version > before[0] or fields == set(before[1:]), "a field was added: raise VERSION"
    if request.config.getoption("--update-golden"):
        FIELDS.write_text("\n".join([version, *sorted(fields)]) + "\n")
    assert FIELDS.read_text().split() == [version, *sorted(fields)]


@pytest.mark.parametrize("question", [*QUESTIONS, *examples()])
def test_answer_is_as_described(port: int, described: Described, question: str) -> None:
    code, headers, body = ask(port, question)
    assert (code == 200) == (question not in QUESTIONS[1:])
    assert differences(described, question.partition("?")[0], code, headers, body) == []


def test_answers_before_anything_is_measured_are_as_described(
    tmp_path: Path, described: Described
) -> None:
    with everything(tmp_path, snapshots.bare()) as number:
        for path in ("/api/v1/status", "/api/v1/probes", "/api/v1/alerts", "/-/ready"):
            assert differences(described, path, *ask(number, path)) == []


REFUSED: tuple[tuple[int, str, dict[str, str]], ...] = (
    (403, "", {"origin": "https://attacker.example"}),
    (413, "", {"content_length": "9"}),
    (414, "?probe=" + "x" * LONGEST_TARGET, {}),
    (421, "", {"host": "attacker.example"}),
    (431, "", {f"x-{number}": "x" for number in range(150)}),
)


def test_refusals_and_a_missing_history_are_as_described(port: int, described: Described) -> None:
    for code, query, headers in REFUSED:
        for path in ("/api/v1/status", "/api/v1/history", "/metrics"):
            answer = ask(port, f"{path}{query}", **headers)
            assert answer[0] == code
            assert differences(described, path, *answer) == []
    with served(snapshots.bare()) as number:
        for question in ("/api/v1/events", "/api/v1/alerts?since=0", "/api/v1/history?probe=event"):
            answer = ask(number, question)
            assert (answer[0], answer[1]["retry-after"]) == (503, "1")
            assert differences(described, question.partition("?")[0], *answer) == []


def test_description_has_every_route_for_programs_and_no_other(
    tmp_path: Path, described: Described
) -> None:
    settings = parse(None, {})
    collector = SnapshotCollector(snapshots.bare, settings, lambda: snapshots.NOW)
    application = app(snapshots.bare, History(tmp_path), settings, collector, lambda: snapshots.NOW)
    routes = [route for route in application.routes if isinstance(route, Route)]
    paths = {route.path for route in routes if route.path.startswith(PROGRAMS)}
    assert paths == set(described["paths"]) == {path.partition("?")[0] for path in examples()}
    assert all(route.methods == {"GET", "HEAD"} for route in routes)


def test_description_has_the_limits_of_parameters_and_every_field_as_required(
    described: Described,
) -> None:
    parameters = described["paths"]["/api/v1/history"]["get"]["parameters"]
    limits = {parameter["name"]: parameter["schema"] for parameter in parameters}
    assert list(limits) == ["gpu", "since", "until", "points", "probe", "mode"]
    assert limits["points"] == {"type": "integer", "minimum": 1, "maximum": 2000, "default": 300}
    assert limits["mode"]["type"] == "array"
    assert [each["name"] for each in parameters if each["required"]] == ["probe"]
    for name, schema in described["components"]["schemas"].items():
        if "properties" in schema:
            assert schema["required"] == list(schema["properties"]), name


# --- docs/api.md ---------------------------------------------------------------------------------


def test_table_of_the_page_is_that_of_the_description(described: Described) -> None:
    table = ["| Path | Gives | Parameters |", "|---|---|---|"]
    for path, item in described["paths"].items():
        parameters = [
            f"`{each['name']}`{' (needed)' if each['required'] else ''}: {each['description']}"
            for each in item["get"].get("parameters", ())
        ]
        summary = item["get"]["summary"]
        table.append(f"| `{path}` | {summary} | {'<br>'.join(parameters) or 'none'} |")
    assert PAGE.read_text().split("<!-- paths -->")[1].strip().splitlines() == table


def test_page_explains_every_reason_and_no_other() -> None:
    sources = (PAGE.parents[1] / "gpud/agent/serve/api").glob("*.py")
    pattern = r'"((?:bad|unknown|no_such|method)_[a-z_]+|busy|internal)"'
    reasons = {name for source in sources for name in re.findall(pattern, source.read_text())}
    reasons |= {f"unknown_{name}" for name in ("probe", "mode", "gpu")}
    reasons |= {reason.value for reason in ANSWERS}
    explained = set(re.findall(r"^\| `([a-z_]+)` \| \d", PAGE.read_text(), re.MULTILINE))
    assert explained - {"slow"} == reasons


CHECKS = """
import schemathesis

@schemathesis.check
def only_ranges_are_refused_although_each_end_is_valid(ctx, response, case):
    if response.status_code == 400 and case.meta.generation.mode.is_positive:
        assert response.json()["error"]["reason"] == "bad_range", response.text
"""

CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 404, 405, 414]  # what is wrong may be too long as well
"""


@pytest.mark.timeout(300)  # 6 s of CPU time, on a machine that may have other work
def test_nothing_that_may_be_asked_breaks_the_description(port: int, tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{port}{PATH}"),
            *("--exclude-checks", "positive_data_acceptance", "--generation-database", "none"),
            *("--no-color", "--max-examples", "10", "--seed", "1"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=280,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "checks", "PYTHONPATH": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "9 selected / 9 total" in ran.stdout
    assert "1 passed" in ran.stdout.partition("Examples")[2].partition("Coverage")[0]
    assert "Fuzzing" in ran.stdout
