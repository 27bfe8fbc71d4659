"""docs/api.md: its table is that of the description, and its examples answer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from gpud.agent.serve.api import openapi
from gpud.show.refusals import ANSWERS
from tests.agent.serve.api.described import Described
from tests.agent.serve.api.everything import everything
from tests.agent.serve.http.test_web import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).resolve().parents[4] / "docs/api.md"
MARK = "<!-- paths -->"
HEAD = ["| Path | Gives | Parameters |", "|---|---|---|"]


def values(schema: dict[str, Any]) -> str:
    """Say what a parameter may be."""
    if schema.get("type") == "array":
        return f"{values(schema['items'])}; may be repeated, or several with commas between"
    if "anyOf" in schema and "enum" in schema["anyOf"][0]:
        return values(schema["anyOf"][0])
    if "anyOf" in schema:
        return "Unix seconds or RFC 3339"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{name}`" for name in schema["enum"])
    if schema["type"] == "integer":
        limits = f"{schema['minimum']:,} to {schema['maximum']:,}"
        return f"{limits}, {schema['default']:,} where not given"
    return "a name"


def row(path: str, asked: dict[str, Any]) -> str:
    told = [
        f"`{one['name']}`{' (needed)' if one['required'] else ''}: {one['description']}"
        f" ({values(one['schema'])})"
        for one in asked.get("parameters", ())
    ]
    return f"| `{path}` | {asked['summary']} | {'<br>'.join(told) or 'none'} |"


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


def test_the_table_is_that_of_the_description() -> None:
    paths = openapi.document()["paths"]
    told = PAGE.read_text().split(MARK)[1].strip().splitlines()
    assert told == [*HEAD, *(row(path, item["get"]) for path, item in paths.items())]


def test_every_path_has_an_example_and_every_example_answers(port: int) -> None:
    described = Described(openapi.document())
    asked = examples()
    assert {one.partition("?")[0] for one in asked} == set(described.paths())
    for question in asked:
        code, headers, body = ask(port, question)
        assert code == 200, question
        path = question.partition("?")[0]
        assert described.differences(path, code, headers, body) == []


def test_every_reason_that_the_page_explains_can_be_had_and_the_other_way_round() -> None:
    agent = PAGE.parents[1] / "gpud/agent"
    sources = (agent / "serve/api").glob("*.py")
    said = {
        reason
        for source in sources
        for reason in re.findall(
            r'"((?:bad|unknown|no_such|method)_[a-z_]+|busy|internal)"', source.read_text()
        )
    }
    said |= {f"unknown_{name}" for name in ("probe", "mode", "gpu")}
    said |= {reason.value for reason in ANSWERS}
    told = set(re.findall(r"^\| `([a-z_]+)` \| \d", PAGE.read_text(), re.MULTILINE))
    assert told - {"slow"} == said
