"""The description of the API as a judge: what it says of an answer, and where the answer differs.

Schemas are closed here: a field that is answered and not described is a difference as well.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema


class Described:
    """A description, as /api/v1/openapi.json gives it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._components = {
            "schemas": {
                name: _closed(schema) for name, schema in document["components"]["schemas"].items()
            }
        }

    def paths(self) -> list[str]:
        return list(self.document["paths"])

    def differences(self, path: str, code: int, headers: dict[str, str], body: bytes) -> list[str]:
        """Say what of an answer is not as described; nothing is as it should be."""
        answer = self.document["paths"][path]["get"]["responses"].get(str(code))
        if answer is None:
            return [f"{path}: {code} is not described"]
        if "$ref" in answer:
            answer = self.document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        if code == 304:
            return [f"{path}: 304 with a body"] if body else []
        media = headers["content-type"].partition(";")[0]
        if media not in answer["content"]:
            return [f"{path}: {media} is not described"]
        if media != "application/json":
            return []
        schema = {**answer["content"][media]["schema"], "components": self._components}
        judge = jsonschema.Draft202012Validator(schema)
        return [
            f"{path}: {error.json_path}: {error.message[:200]}"
            for error in judge.iter_errors(json.loads(body))
        ]


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if "properties" not in schema else {"additionalProperties": False, **schema}
