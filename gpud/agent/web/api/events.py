"""/api/v1/events: what happened to driver and machine, read from the history beside its writer.

Newest first, because what happened last is what one asks about and a limit cuts off the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from gpud.agent.eventrows import MOST, Window
from gpud.agent.web.api.queries import (
    Unusable,
    answer,
    asked,
    count,
    moment,
    one_of,
    refusal,
    refuse_unknown,
    unavailable,
)
from gpud.core import commands
from gpud.core.changes import KINDS
from gpud.core.errors import StoreError
from gpud.core.presence import GPU_FORGOTTEN, GPU_SEEN

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.store import History

PATH: Final = "/api/v1/events"
USUAL: Final = 100
KNOWN: Final = (*KINDS, GPU_SEEN, GPU_FORGOTTEN, *commands.KINDS)
PARAMETERS: Final = ("since", "until", "kind", "limit")


def route(history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""

    async def events(request: Request) -> Response:
        try:
            wanted = window(request.query_params)
        except Unusable as error:
            return refusal(error)
        # One more than asked for: whether there are more is not worth a second question.
        more = Window(wanted.since_s, wanted.until_s, wanted.kinds, wanted.limit + 1)
        try:
            found = await asked(history, lambda store: store.events(more))
        except StoreError as error:
            return unavailable(error)
        shown = [
            {**entry.body, "kind": entry.kind, "at_s": entry.at_s}
            for entry in found[: wanted.limit]
        ]
        return answer({"events": shown, "more": len(found) > wanted.limit})

    return Route(PATH, events)


def window(query: QueryParams) -> Window:
    """Read the query. ``Errors: Unusable``."""
    refuse_unknown(query, PARAMETERS, lists=("kind",))
    since_s, until_s = (moment(name, query.get(name)) for name in ("since", "until"))
    if since_s is not None and until_s is not None and since_s > until_s:
        raise Unusable("since", "since is later than until", "exchange the two")
    kinds = tuple(kind for text in query.getlist("kind") for kind in text.split(","))
    for kind in kinds:
        if kind not in KNOWN:
            raise Unusable("kind", f"there is no kind {kind!a:.40}", one_of(KNOWN))
    return Window(
        since_s,
        until_s,
        tuple(dict.fromkeys(kinds)),
        count("limit", query.get("limit"), usual=USUAL, most=MOST),
    )
