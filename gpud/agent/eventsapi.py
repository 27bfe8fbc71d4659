"""/api/v1/events: what happened to driver and machine, read from the history beside its writer.

Newest first, because what happened last is what one asks about and a limit cuts off the rest.
"""

from __future__ import annotations

import asyncio
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse
from starlette.routing import Route

from gpud.agent.eventrows import MOST, Window
from gpud.core import commands
from gpud.core.changes import KINDS
from gpud.core.errors import StoreError
from gpud.core.presence import GPU_FORGOTTEN, GPU_SEEN
from gpud.core.sample import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.store import History

PATH: Final = "/api/v1/events"
USUAL: Final = 100
PATIENCE_S: Final = 4.0
KNOWN: Final = (*KINDS, GPU_SEEN, GPU_FORGOTTEN, *commands.KINDS)
PARAMETERS: Final = ("since", "until", "kind", "limit")


class Unusable(Exception):  # noqa: N818  # reads as the fact it states
    """A parameter cannot be used; ``fix`` says what can."""

    def __init__(self, parameter: str, detail: str, fix: str) -> None:
        super().__init__(detail)
        self.parameter = parameter
        self.fix = fix


def route(history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""

    async def events(request: Request) -> Response:
        try:
            wanted = window(request.query_params)
        except Unusable as error:
            said = {"parameter": error.parameter, "detail": str(error), "fix": error.fix}
            return answer({"error": said}, status_code=400)
        # One more than asked for: whether there are more is not worth a second question.
        more = Window(wanted.since_s, wanted.until_s, wanted.kinds, wanted.limit + 1)
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await history.ask(lambda store: store.events(more))
        except TimeoutError:
            slow = f"the history did not answer within {PATIENCE_S:g} s"
            failed = {"reason": "slow", "detail": slow, "fix": "look at the disk"}
            return answer({"error": failed}, status_code=503)
        except StoreError as error:
            failed = {"reason": error.reason, "detail": str(error), "fix": error.fix or ""}
            return answer({"error": failed}, status_code=503)
        shown = [
            {**entry.body, "kind": entry.kind, "at_s": entry.at_s}
            for entry in found[: wanted.limit]
        ]
        return answer({"events": shown, "more": len(found) > wanted.limit})

    return Route(PATH, events)


def window(query: QueryParams) -> Window:
    """Read the query. ``Errors: Unusable``."""
    refuse_others(query, PARAMETERS)
    since_s, until_s = (moment(name, query.get(name)) for name in ("since", "until"))
    if since_s is not None and until_s is not None and since_s > until_s:
        raise Unusable("since", "since is later than until", "exchange the two")
    kinds = tuple(kind for text in query.getlist("kind") for kind in text.split(","))
    for kind in kinds:
        if kind not in KNOWN:
            raise Unusable("kind", f"there is no kind {kind!a:.40}", _one_of(KNOWN))
    return Window(since_s, until_s, tuple(dict.fromkeys(kinds)), limit(query.get("limit")))


def refuse_others(query: QueryParams, known: Sequence[str]) -> None:
    """Refuse a parameter that nobody knows, or that is given twice. ``Errors: Unusable``."""
    for name in query:
        if name not in known:
            raise Unusable(name, f"there is no parameter {name!a:.40}", _one_of(known))
        if name != "kind" and len(query.getlist(name)) > 1:
            raise Unusable(name, f"{name} is given more than once", f"give {name} once")


def moment(name: str, text: str | None) -> float | None:
    """Read a moment, Unix seconds or RFC 3339; None for none. ``Errors: Unusable``."""
    if text is None:
        return None
    fix = f"{name}=1700000000, or {name}=2023-11-14T22:13:20Z (a + is written %2B)"
    try:
        moment = float(text)
    except ValueError:
        try:
            told = datetime.fromisoformat(text)
        except ValueError:
            raise Unusable(name, f"{name} is no moment: {text!a:.40}", fix) from None
        if told.tzinfo is None:
            detail = f"{name} lacks its offset from UTC: {text!a:.40}"
            raise Unusable(name, detail, fix) from None
        moment = told.timestamp()
    if not math.isfinite(moment):
        raise Unusable(name, f"{name} is no moment: {text!a:.40}", fix)
    return moment


def limit(text: str | None) -> int:
    """Read how many are wanted at the most. ``Errors: Unusable``."""
    if text is None:
        return USUAL
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST))):
        raise Unusable("limit", f"limit is no count: {text!a:.40}", f"1 to {MOST}")
    if not 1 <= int(text) <= MOST:
        raise Unusable("limit", f"limit is {text}", f"1 to {MOST}")
    return int(text)


def _one_of(names: Sequence[str]) -> str:
    return f"use one of {', '.join(names)}"


def answer(document: dict[str, Any], status_code: int = 200) -> JSONResponse:
    """Give a document as every one is given here."""
    return JSONResponse({"schema_version": SCHEMA_VERSION, **document}, status_code=status_code)
