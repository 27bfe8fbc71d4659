"""/api/v1/openapi.json: every path in OpenAPI 3.1, generated from parameters and answer types.

Parameters are the objects that read the queries, schemas are made of the types that are encoded.
The document is made when a client first asks for it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import Refusal
from gpud.agent.serve.api.endpoints import DESCRIPTIONS
from gpud.agent.serve.api.parameters import MOST_NAMES
from gpud.agent.serve.http.response import JSON, Body
from gpud.agent.serve.refusals import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.serve.api.parameters import Parameter

PATH: Final = "/api/v1/openapi.json"
VERSION: Final = "1.4.0"
"""Of the API: the first number is that of its paths, the second grows with what is added."""
REFERENCE: Final = "#/components/schemas/"
NAMES: Final = {
    "StreamName": "StreamKey",
    "EvidenceReport": "Evidence",
    "DeviceReport": "Device",
    "PeakReport": "Peak",
    "PointReport": "Point",
}
"""Names of schemas, which stay, and the classes they are made of, whose names are others by now."""
LINE: Final = "text/plain"
TEXT: Final = {"type": "string"}
SOME_PATHS: Final = {
    400: "A parameter cannot be used, and the answer names it; or what was sent is no request.",
    404: "A parameter names what there is not; the answer says what there is.",
    503: "The history cannot be read just now, or too many ask; the answer says why.",
}
ANY_PATH: Final = {
    problem.status: f"{problem.detail[0].upper()}{problem.detail[1:]}."
    for problem in ANSWERS.values()
}
"""What any path can answer before it is looked at: below /api as JSON, elsewhere as a line."""
DESCRIPTION: Final = """Read-only: GET and HEAD, and nothing that is asked starts a probe or changes
anything. Base units throughout: a name that ends in `_s` is in seconds, and in Unix seconds where
it is a moment. What is not known is null or absent, never 0. Every answer has `schema_version`;
fields are added, and below /api/v1 none is renamed, removed or given another meaning. Answers of
200 have an ETag and are compressed for who accepts gzip. What cannot be answered has `error` with a
`reason` for programs, a `detail` for people, and a `fix`."""


def route() -> Route:
    """Make the route."""
    cached: Body | None = None

    async def description(_: QueryParams) -> Body:
        nonlocal cached
        if cached is None:
            cached = await asyncio.to_thread(lambda: Body.of(document()))
        return cached

    return answers.route(PATH, (), description)


def document() -> dict[str, Any]:
    """Make the whole description."""
    types = (*(description.answer for description in DESCRIPTIONS), Refusal)
    references, schemas = _schemas(types)
    schema_of = dict(zip(types, references, strict=True))
    paths = {
        description.path: {
            **_operation(
                description.summary, schema_of[description.answer], refusals=description.refusals
            ),
            "parameters": [_parameter(parameter) for parameter in description.parameters],
        }
        for description in DESCRIPTIONS
    } | {
        PATH: _operation("This description", {"type": "object"}),
        "/metrics": _operation(
            "Everything as metrics, in the text format of Prometheus",
            TEXT,
            (LINE, "application/openmetrics-text"),
        ),
        "/-/healthy": _operation("Whether gpud answers", TEXT, (LINE,)),
        "/-/ready": _operation("Whether the first probes have ended", TEXT, (LINE,)),
    }
    paths["/-/ready"]["responses"]["503"] = _response("Not yet.", TEXT, (LINE,))
    as_json = {
        str(code): _response(words, schema_of[Refusal])
        for code, words in (ANY_PATH | SOME_PATHS).items()
    }
    as_line = {f"line_{code}": _response(words, TEXT, (LINE,)) for code, words in ANY_PATH.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpud", "version": VERSION, "description": _single_line(DESCRIPTION)},
        "paths": {
            path: {"get": {**operation, "operationId": path.rpartition("/")[2].partition(".")[0]}}
            for path, operation in paths.items()
        },
        "components": {
            "schemas": {name: _all_required(schema) for name, schema in schemas.items()},
            "responses": as_json | as_line,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _schemas(types: Sequence[type]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Make the schemas of all types and references to them, under the names of ``NAMES``."""
    made = msgspec.json.schema_components(types, ref_template=REFERENCE + "{name}")
    text = json.dumps(made)
    for name, published in NAMES.items():
        text = text.replace(f'"{REFERENCE}{name}"', f'"{REFERENCE}{published}"')
    references, schemas = json.loads(text)
    return references, {NAMES.get(name, name): schema for name, schema in schemas.items()}


def _operation(
    summary: str,
    schema: Mapping[str, Any],
    media: tuple[str, ...] = (JSON,),
    refusals: Iterable[int] = (),
) -> dict[str, Any]:
    answer = _response(summary, schema, media)
    responses: dict[str, Any] = {"200": answer}
    prefix = "line_"
    if media == (JSON,):
        prefix = ""
        answer["headers"] = {"ETag": {"description": "changes with the answer", "schema": TEXT}}
        responses["304"] = {"description": "If-None-Match has the tag of the answer."}
    responses |= {
        str(code): {"$ref": f"#/components/responses/{prefix}{code}"}
        for code in sorted({*ANY_PATH, *refusals})
    }
    return {"summary": summary, "security": [{}, {"basic": []}], "responses": responses}


def _response(
    words: str, schema: Mapping[str, Any], media: tuple[str, ...] = (JSON,)
) -> dict[str, Any]:
    return {"description": words, "content": {name: {"schema": schema} for name in media}}


def _parameter(parameter: Parameter[Any]) -> dict[str, Any]:
    schema: Mapping[str, Any] = parameter.schema
    example: object = parameter.example
    if parameter.many:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": MOST_NAMES}
        example = [example]
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.summary,
        "required": parameter.required,
        "schema": schema,
        **({} if parameter.example is None else {"example": example}),
    }


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
