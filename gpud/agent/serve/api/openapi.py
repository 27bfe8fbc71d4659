"""/api/v1/openapi.json: every path in OpenAPI 3.1, generated from parameters and answer types.

Parameters are the structs that queries become, schemas are made of the types that are encoded.
The document is made when a client first asks for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import Refusal
from gpud.agent.serve.api.endpoints import DESCRIPTIONS
from gpud.agent.serve.api.parameters import NoParameters, described
from gpud.agent.serve.http.response import JSON, Body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.routing import Route

PATH: Final = "/api/v1/openapi.json"
VERSION: Final = "1.5.0"
"""Of the API: the first number is that of its paths, the second grows with what is added."""
REFERENCE: Final = "#/components/schemas/{name}"
TEXT: Final = {"type": "string"}
OTHERS: Final = (
    (PATH, "This description", {"type": "object"}, (JSON,)),
    (
        "/metrics",
        "Everything as metrics, in the text format of Prometheus",
        TEXT,
        ("text/plain", "application/openmetrics-text"),
    ),
    ("/-/healthy", "Whether gpud answers", TEXT, ("text/plain",)),
    ("/-/ready", "Whether the first probes have ended", TEXT, ("text/plain",)),
)
DESCRIPTION: Final = """Read-only: GET and HEAD, and nothing that is asked starts a probe or changes
anything. Base units throughout: a name that ends in `_s` is in seconds, and in Unix seconds where
it is a moment. What is not known is null or absent, never 0. Every answer has `schema_version`;
fields are added, and below /api/v1 none is renamed, removed or given another meaning. Answers of
200 have an ETag and are compressed for who accepts gzip. What cannot be answered has `error` with a
`reason` for programs, a `detail` for people, and a `fix`."""


def route() -> Route:
    """Make the route."""
    cached: Body | None = None

    async def description(_: NoParameters) -> Body:
        nonlocal cached
        if cached is None:
            cached = await asyncio.to_thread(lambda: Body.of(document()))
        return cached

    return answers.route(PATH, NoParameters, description)


def document() -> dict[str, Any]:
    """Make the whole description."""
    types = (*(description.answer for description in DESCRIPTIONS), Refusal)
    references, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = dict(zip(types, references, strict=True))
    refusal = _response("No answer: its reason and its fix", schema_of[Refusal])
    as_line = _response("Not answered, or not yet: the reason in a line", TEXT, ("text/plain",))
    paths = {
        description.path: {
            "summary": description.summary,
            "parameters": _parameters(description.parameters),
            "responses": {
                "200": _response(description.summary, schema_of[description.answer]),
                "default": refusal,
            },
        }
        for description in DESCRIPTIONS
    }
    for path, summary, schema, media in OTHERS:
        error = as_line if "text/plain" in media else refusal
        responses = {"200": _response(summary, schema, media), "default": error}
        paths[path] = {"summary": summary, "responses": responses}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpud", "version": VERSION, "description": _single_line(DESCRIPTION)},
        "paths": {
            path: {
                "get": {
                    **operation,
                    "operationId": path.rpartition("/")[2].partition(".")[0],
                    "security": [{}, {"basic": []}],
                }
            }
            for path, operation in paths.items()
        },
        "components": {
            "schemas": {name: _all_required(schema) for name, schema in schemas.items()},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _response(
    words: str, schema: Mapping[str, Any], media: tuple[str, ...] = (JSON,)
) -> dict[str, Any]:
    return {"description": words, "content": {name: {"schema": schema} for name in media}}


def _parameters(parameters: type[msgspec.Struct]) -> list[dict[str, Any]]:
    schemas = described(parameters)
    return [
        {
            "name": field.name,
            "in": "query",
            "description": schemas[field.name].pop("description"),
            "required": field.required,
            "schema": schemas[field.name],
        }
        for field in msgspec.structs.fields(parameters)
    ]


def _all_required(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Mark every field as required: what is not known is null, and never absent."""
    complete = dict(schema)
    if "properties" in complete:
        complete["required"] = list(complete["properties"])
        complete["properties"] = {
            name: {key: value for key, value in field.items() if key != "default"}
            for name, field in complete["properties"].items()
        }
    if "description" in complete:
        complete["description"] = _single_line(complete["description"])
    return complete


def _single_line(text: str) -> str:
    return " ".join(text.split())
