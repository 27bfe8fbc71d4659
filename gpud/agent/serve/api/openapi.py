"""/api/v1/openapi.json: every path in OpenAPI 3.1, generated from parameters and answer types.

Parameters are the objects that read the queries, schemas are made of the types that are encoded.
The document is made when a client first asks for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpud.agent.history.charts import HistoryAnswer
from gpud.agent.serve.api import alerts, answers, events, history, probes, status
from gpud.agent.serve.api.documents import AlertsAnswer, EventsAnswer, ProbesAnswer, Refusal
from gpud.agent.serve.api.queries import MOST_NAMES
from gpud.agent.serve.http.response import JSON, Body
from gpud.agent.state.statusdocument import StatusDocument
from gpud.show.refusals import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.serve.api.queries import Parameter

PATH: Final = "/api/v1/openapi.json"
VERSION: Final = "1.0.0"
"""Of the API: the first number is that of its paths, the second grows with what is added."""
REFERENCE: Final = "#/components/schemas/{name}"
LINE: Final = "text/plain"


@dataclass(frozen=True, slots=True)
class Question:
    """One path below /api: what it answers, what it can be asked, and how it can refuse."""

    path: str
    summary: str
    answer: type
    parameters: Sequence[Parameter[Any]] = ()
    refusals: Sequence[int] = ()  # beside those of any path


QUESTIONS: Final = (
    Question(status.PATH, "Everything of this moment", StatusDocument),
    Question(probes.PATH, "What is measured, and the last run of each", ProbesAnswer),
    Question(
        history.PATH,
        "Figures of one probe over time",
        HistoryAnswer,
        history.PARAMETERS,
        (404, 503),
    ),
    Question(
        events.PATH,
        "What happened to driver and machine",
        EventsAnswer,
        events.PARAMETERS,
        (503,),
    ),
    Question(
        alerts.PATH, "What fires, and what has fired", AlertsAnswer, alerts.PARAMETERS, (503,)
    ),
)
WORDS: Final = {
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
    made: Body | None = None

    async def description(_: QueryParams) -> Body:
        nonlocal made
        if made is None:
            made = await asyncio.to_thread(lambda: Body.of(document()))
        return made

    return answers.route(PATH, (), description)


def document() -> dict[str, Any]:
    """Make the whole description."""
    types = (*(question.answer for question in QUESTIONS), Refusal)
    references, schemas = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = dict(zip(types, references, strict=True))
    refusals = {**ANY_PATH, **WORDS}
    paths = {
        **{entry.path: _question(entry, schema_of[entry.answer]) for entry in QUESTIONS},
        PATH: _operation("This description", JSON, {"type": "object"}),
        **_texts(),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "gpud", "version": VERSION, "description": _line(DESCRIPTION)},
        "paths": {path: {"get": {**entry, **_operation_id(path)}} for path, entry in paths.items()},
        "components": {
            "schemas": {name: _complete(schema) for name, schema in schemas.items()},
            "responses": {
                **{
                    str(code): _response(words, JSON, schema_of[Refusal])
                    for code, words in refusals.items()
                },
                **{
                    f"line_{code}": _response(words, LINE, {"type": "string"})
                    for code, words in ANY_PATH.items()
                },
            },
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _question(question: Question, schema: Mapping[str, Any]) -> dict[str, Any]:
    operation = _operation(question.summary, JSON, schema, refusals=question.refusals)
    operation["parameters"] = [_parameter(parameter) for parameter in question.parameters]
    return operation


def _operation(
    summary: str, media: str, schema: Mapping[str, Any], *, refusals: Sequence[int] = ()
) -> dict[str, Any]:
    answer = _response(summary, media, schema)
    responses: dict[str, Any] = {"200": answer}
    if media == JSON:
        tag = {"description": "changes with the answer", "schema": {"type": "string"}}
        answer["headers"] = {"ETag": tag}
        responses["304"] = {"description": "If-None-Match has the tag of the answer."}
    prefix = "" if media == JSON else "line_"
    responses |= {
        str(code): {"$ref": f"#/components/responses/{prefix}{code}"}
        for code in sorted({*ANY_PATH, *refusals})
    }
    return {"summary": summary, "security": [{}, {"basic": []}], "responses": responses}


def _response(words: str, media: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {media: {"schema": schema}}}


def _texts() -> dict[str, Any]:
    """Describe the paths for monitoring, which answer with text."""
    text = {"type": "string"}
    metrics = _operation("Everything as metrics, in the text format of Prometheus", LINE, text)
    metrics["responses"]["200"]["content"]["application/openmetrics-text"] = {"schema": text}
    ready = _operation("Whether the first probes have ended", LINE, text)
    ready["responses"]["503"] = _response("Not yet.", LINE, text)
    return {
        "/metrics": metrics,
        "/-/healthy": _operation("Whether gpud answers", LINE, text),
        "/-/ready": ready,
    }


def _operation_id(path: str) -> dict[str, str]:
    """Name the operation, as generators of clients need it."""
    return {"operationId": path.rpartition("/")[2].partition(".")[0]}


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


def _complete(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Mark every field as required: what is not known is null, and never absent."""
    complete = dict(schema)
    if "properties" in complete:
        complete["required"] = list(complete["properties"])
        complete["properties"] = {
            name: {key: value for key, value in field.items() if key != "default"}
            for name, field in complete["properties"].items()
        }
    if "description" in complete:
        complete["description"] = _line(complete["description"])
    return complete


def _line(text: str) -> str:
    return " ".join(text.split())
