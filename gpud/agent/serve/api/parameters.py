"""Query parameters: the object that reads a parameter also describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.datastructures import QueryParams

T = TypeVar("T")

FARTHEST_S: Final = 1e12
"""Of a moment, from 1970 in either direction: beyond every date that RFC 3339 can write."""
NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
LONGEST_NAME: Final = 100
MOST_NAMES: Final = 32


class UnusableParameter(Exception):  # noqa: N818  # reads as the fact it states
    """A parameter cannot be used; ``fix`` says what can."""

    status_code = 400

    def __init__(
        self, parameter: str, detail: str, fix: str, reason: str = "bad_parameter"
    ) -> None:
        super().__init__(detail)
        self.parameter = parameter
        self.fix = fix
        self.reason = reason


class UnknownValue(UnusableParameter):
    """A parameter names something that does not exist; ``fix`` lists what does."""

    status_code = 404

    def __init__(self, parameter: str, name: str, valid: Sequence[str]) -> None:
        detail = f"there is no {parameter} {name!a:.40}"
        super().__init__(parameter, detail, list_choices(valid), f"unknown_{parameter}")


@dataclass(frozen=True, slots=True)
class Parameter(Generic[T]):
    """One parameter of a query. ``many``: it may be repeated, and hold names with commas between.

    ``schema`` is JSON Schema of one value. ``parse`` takes name and text.
    Errors of all methods: ``UnusableParameter``.
    """

    name: str
    summary: str
    schema: Mapping[str, Any]
    parse: Callable[[str, str], T]
    many: bool = False
    required: bool = False
    example: str | None = None

    def value(self, query: QueryParams) -> T | None:
        """Return the only value, None where the parameter is absent."""
        text = query.get(self.name)
        return None if text is None else self.parse(self.name, text)

    def values(self, query: QueryParams) -> tuple[T, ...]:
        """Return each value of a repeatable parameter once, in their order."""
        groups = [text.split(",") for text in query.getlist(self.name)]
        if max(len(groups), *map(len, groups), 0) > MOST_NAMES:
            detail = f"{self.name} has more than {MOST_NAMES} values"
            raise UnusableParameter(self.name, detail, f"at most {MOST_NAMES}")
        names = (name for names in groups for name in names)
        return tuple(dict.fromkeys(self.parse(self.name, name) for name in names))


def moment(name: str, summary: str) -> Parameter[float]:
    """Make a parameter of Unix seconds or RFC 3339."""
    number = {"type": "number", "minimum": -FARTHEST_S, "maximum": FARTHEST_S}
    schema = {"anyOf": [number, {"type": "string", "format": "date-time"}]}
    return Parameter(name, summary, schema, _moment)


def count(name: str, summary: str, *, default: int, most: int) -> Parameter[int]:
    """Make a parameter of a number from 1 to ``most``."""

    def parse(name: str, text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not (is_number and 1 <= int(text) <= most):
            detail = f"{name} is no number from 1 to {most}: {text!a:.40}"
            raise UnusableParameter(name, detail, f"1 to {most}")
        return int(text)

    schema = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return Parameter(name, summary, schema, parse)


def choice(name: str, summary: str, valid: Sequence[str]) -> Parameter[str]:
    """Make a parameter of one or more of ``valid``."""

    def parse(name: str, text: str) -> str:
        if text not in valid:
            detail = f"there is no {name} {text!a:.40}"
            raise UnusableParameter(name, detail, list_choices(valid))
        return text

    several = _list_of("|".join(map(re.escape, valid)), least=2)
    schema = {"anyOf": [{"type": "string", "enum": list(valid)}, several]}
    return Parameter(name, summary, schema, parse, many=True)


def named(
    name: str, summary: str, example: str, *, many: bool = False, required: bool = False
) -> Parameter[str]:
    """Make a parameter of names that only an answer can know."""
    single = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
    schema = _list_of(f"[^,]{{1,{LONGEST_NAME}}}") if many else single
    return Parameter(name, summary, schema, _name, many, required, example)


def refuse_unknown(query: QueryParams, accepted: Sequence[Parameter[Any]]) -> None:
    """Reject unknown parameters, and repeated ones that take one value."""
    parameters = {parameter.name: parameter for parameter in accepted}
    for name in query:
        if name not in parameters:
            fix = list_choices(tuple(parameters)) if parameters else "leave it out"
            detail = f"there is no parameter {name!a:.40}"
            raise UnusableParameter(name, detail, fix, "unknown_parameter")
        if not parameters[name].many and len(query.getlist(name)) > 1:
            raise UnusableParameter(name, f"{name} is repeated", f"give {name} once")


def list_choices(names: Sequence[str]) -> str:
    """List the possible values in words."""
    return f"use one of {', '.join(names)}" if names else "there is none yet"


def _list_of(item: str, *, least: int = 1) -> dict[str, str]:
    """Describe a value that holds what ``item`` matches ``least`` times, with commas between."""
    more = f"{{{least - 1},{MOST_NAMES - 1}}}"
    return {"type": "string", "pattern": f"^({item})(,({item})){more}$"}


def _moment(name: str, text: str) -> float:
    fix = f"{name}=1700000000, or {name}=2023-11-14T22:13:20Z (a + is written %2B)"
    try:
        moment = None if NUMBER.fullmatch(text) else datetime.fromisoformat(text)
    except ValueError:
        raise UnusableParameter(name, f"{name} is no moment: {text!a:.40}", fix) from None
    if moment is not None and moment.tzinfo is None:
        raise UnusableParameter(name, f"{name} lacks its offset from UTC: {text!a:.40}", fix)
    at_s = float(text) if moment is None else moment.timestamp()
    if not abs(at_s) <= FARTHEST_S:
        raise UnusableParameter(name, f"{name} is no moment: {text!a:.40}", fix)
    return at_s


def _name(name: str, text: str) -> str:
    if not 0 < len(text) <= LONGEST_NAME:
        length = f"1 to {LONGEST_NAME} characters"
        raise UnusableParameter(name, f"{name} has {len(text)} characters", length)
    return text
