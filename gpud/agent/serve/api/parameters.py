"""Query parameters as structs: msgspec reads them, and makes their description from the same types.

A name that may be given several times may also hold several with commas between them.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from gpud.agent.alerts.state import MOST_ROWS
from gpud.agent.history.queries import MOST_EVENTS
from gpud.agent.regression import commands
from gpud.agent.state.facts import KINDS
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

FARTHEST_S: Final = 1e12
"""Of a moment, from 1970 in either direction: beyond every date that RFC 3339 can write."""
MOST_NAMES: Final = 32
EVENT_KINDS: Final = (*KINDS, GPU_SEEN, GPU_FORGOTTEN, *commands.KINDS, commands.PROBE_REQUESTED)
_UNIX: Final = "Unix seconds or 2023-11-14T22:13:20Z (+ as %2B)"

Moment: TypeAlias = (
    Annotated[float, Meta(ge=-FARTHEST_S, le=FARTHEST_S)] | Annotated[datetime, Meta(tz=True)]
)
Name: TypeAlias = Annotated[str, Meta(pattern="^[^,]+$", min_length=1, max_length=100)]
Kind: TypeAlias = Annotated[str, Meta(pattern=f"^({'|'.join(EVENT_KINDS)})$")]


class NoParameters(msgspec.Struct, frozen=True):
    """A question that takes none."""


class TelemetryParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs, time and steps."""

    gpu: Annotated[
        tuple[Name, ...],
        Meta(
            max_length=MOST_NAMES,
            description=f"up to {MOST_NAMES}, by UUID or number, or cpu; default all",
        ),
    ] = ()
    since: Annotated[
        Moment | None, Meta(description=f"begin, {_UNIX}; default a day before `until`")
    ] = None
    until: Annotated[Moment | None, Meta(description=f"end, {_UNIX}; default now")] = None
    points: Annotated[
        int, Meta(ge=1, le=2000, description="number of steps, 1 to 2000; default 300")
    ] = 300


class HistoryParameters(TelemetryParameters, frozen=True, kw_only=True):
    """Which probe and modes, and of these which GPUs, time and steps."""

    probe: Annotated[
        Name, Meta(description="the probe by its name, as probe=launch", examples=["launch"])
    ]
    mode: Annotated[
        tuple[Name, ...],
        Meta(max_length=MOST_NAMES, description=f"up to {MOST_NAMES} modes; default all"),
    ] = ()


class EventParameters(msgspec.Struct, frozen=True):
    """Which events."""

    since: Annotated[Moment | None, Meta(description=f"begin, {_UNIX}")] = None
    until: Annotated[Moment | None, Meta(description=f"end, {_UNIX}")] = None
    kind: Annotated[
        tuple[Kind, ...],
        Meta(
            max_length=MOST_NAMES,
            description=f"any of {', '.join(EVENT_KINDS)}",
        ),
    ] = ()
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_EVENTS,
            description=f"the newest, 1 to {MOST_EVENTS}; default 100",
        ),
    ] = 100


class AlertParameters(msgspec.Struct, frozen=True):
    """Which alerts."""

    since: Annotated[Moment | None, Meta(description=f"also what fired since, {_UNIX}")] = None
    limit: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_ROWS,
            description=f"the newest, 1 to {MOST_ROWS}; default 100",
        ),
    ] = 100


P = TypeVar("P", bound=msgspec.Struct)


class UnusableParameter(Exception):  # noqa: N818  # reads as the fact it states
    """A parameter cannot be used; ``fix`` says what can."""

    def __init__(
        self, parameter: str, detail: str, fix: str, reason: str = "bad_parameter"
    ) -> None:
        super().__init__(detail)
        self.parameter = parameter
        self.fix = fix
        self.reason = reason


def parsed(query: QueryParams, parameters: type[P]) -> P:
    """Read a query. Errors: ``UnusableParameter``."""
    fields = {field.name: field for field in msgspec.structs.fields(parameters)}
    values: dict[str, str | list[str]] = {}
    for name in query:
        if name not in fields:
            fix = f"use one of {', '.join(fields)}" if fields else "leave it out"
            detail = f"there is no parameter {name!a:.40}"
            raise UnusableParameter(name, detail, fix, "unknown_parameter")
        texts = query.getlist(name)
        if fields[name].default == ():
            values[name] = [part for text in texts for part in text.split(",")]
        elif len(texts) > 1:
            raise UnusableParameter(name, f"{name} is repeated", f"give {name} once")
        else:
            values[name] = texts[0]
    try:
        return msgspec.convert(values, parameters, strict=False)
    except msgspec.ValidationError as error:
        name = re.findall(r"`(?:\$\.)?(\w+)", str(error))[-1]
        value = ",".join(query.getlist(name))
        detail = f"{name} cannot be {value!a:.80}" if name in query else f"{name} is missing"
        raise UnusableParameter(name, detail, f"{name}: {description(parameters, name)}") from None


def described(parameters: type[msgspec.Struct]) -> dict[str, dict[str, object]]:
    """Give the JSON Schema of each parameter."""
    _, components = msgspec.json.schema_components([parameters])
    properties: dict[str, dict[str, object]] = components[parameters.__name__]["properties"]
    return properties


def description(parameters: type[msgspec.Struct], name: str) -> object:
    """Give what a parameter is, and which values it takes."""
    return described(parameters)[name]["description"]


def unix_s(moment: Moment | None) -> float | None:
    """Give a moment in Unix seconds."""
    return moment.timestamp() if isinstance(moment, datetime) else moment
