"""/api/v1/alerts: what fires now, from the snapshot; with ``since`` also what fired since then.

The past is read from the history beside its writer, what began last first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpud.agent import alertrows
from gpud.agent.web.api import answers
from gpud.agent.web.api.answers import Body, asked
from gpud.agent.web.api.documents import AlertsAnswer
from gpud.agent.web.api.queries import count, moment
from gpud.core.ledger_state import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.store import History
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/alerts"
USUAL: Final = 100

SINCE: Final = moment("since", "also what fired at any time since then")
LIMIT: Final = count(
    "limit", "how many at the most, what began last first", usual=USUAL, most=alertrows.MOST
)
PARAMETERS: Final = (SINCE, LIMIT)


def route(read: Callable[[], Snapshot], history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason.

    What fires is in the snapshot, and told as well when no past is asked for and no disk answers.
    """

    async def alerts(query: QueryParams) -> Body:
        since_s, limit = SINCE.one(query), LIMIT.one(query)
        most = USUAL if limit is None else limit
        told = [body(one) for one in read().alerts if one.firing]
        if since_s is not None:
            begin_s = since_s
            past = await asked(
                history,
                lambda store: store.read(lambda rows: alertrows.within(rows, begin_s, most + 1)),
            )
            told = _joined(told, past)
        return Body.of(AlertsAnswer(told[:most], len(told) > most))

    return answers.route(PATH, PARAMETERS, alerts)


def _joined(firing: list[dict[str, Any]], past: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put what fires first, each alert once: the history may be a moment behind."""
    known = {(one["fingerprint"], one["starts_s"]) for one in firing}
    rest = [one for one in past if (one.get("fingerprint"), one.get("starts_s")) not in known]
    return [*firing, *rest]
