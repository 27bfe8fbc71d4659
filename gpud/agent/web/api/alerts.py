"""/api/v1/alerts: what fires now, from the snapshot; with ``since`` also what fired since then.

The past is read from the history beside its writer, what began last first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from gpud.agent import alertrows
from gpud.agent.web.api.queries import (
    Unusable,
    answer,
    asked,
    count,
    moment,
    refusal,
    refuse_unknown,
    unavailable,
)
from gpud.core.errors import StoreError
from gpud.core.ledger_state import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

    from gpud.agent.store import History
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/alerts"
PARAMETERS: Final = ("since", "limit")
USUAL: Final = 100


def route(read: Callable[[], Snapshot], history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason.

    What fires is in the snapshot, and told as well when no past is asked for and no disk answers.
    """

    async def alerts(request: Request) -> Response:
        try:
            since_s, most = _wanted(request.query_params)
        except Unusable as error:
            return refusal(error)
        firing = [body(one) for one in read().alerts if one.firing]
        if since_s is None:
            return answer({"alerts": firing[:most], "more": len(firing) > most})
        begin_s = since_s
        try:
            found = await asked(
                history,
                lambda store: store.read(lambda rows: alertrows.within(rows, begin_s, most + 1)),
            )
        except StoreError as error:
            return unavailable(error)
        told = _joined(firing, found)
        return answer({"alerts": told[:most], "more": len(told) > most})

    return Route(PATH, alerts)


def _wanted(query: QueryParams) -> tuple[float | None, int]:
    """Read the query. ``Errors: Unusable``."""
    refuse_unknown(query, PARAMETERS)
    most = count("limit", query.get("limit"), usual=USUAL, most=alertrows.MOST)
    return moment("since", query.get("since")), most


def _joined(firing: list[dict[str, Any]], past: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put what fires first, each alert once: the history may be a moment behind."""
    known = {(one["fingerprint"], one["starts_s"]) for one in firing}
    rest = [one for one in past if (one.get("fingerprint"), one.get("starts_s")) not in known]
    return [*firing, *rest]
