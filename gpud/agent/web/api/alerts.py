"""/api/v1/alerts: what fires now, from the snapshot; with ``since`` also what fired since then.

The past is read from the history beside its writer, what began last first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts import rows
from gpud.agent.web.api import answers
from gpud.agent.web.api.documents import AlertsAnswer
from gpud.agent.web.api.queries import count, moment
from gpud.agent.web.response import Body
from gpud.core.statusdocument import ToldAlert, alert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.store import History
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/alerts"
USUAL: Final = 100

SINCE: Final = moment("since", "also what fired at any time since then")
LIMIT: Final = count(
    "limit", "how many at the most, what began last first", usual=USUAL, most=rows.MOST
)
PARAMETERS: Final = (SINCE, LIMIT)


def route(read: Callable[[], Snapshot], history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason.

    What fires is in the snapshot, and told as well when no past is asked for and no disk answers.
    """

    async def alerts(query: QueryParams) -> Body:
        since_s, limit = SINCE.one(query), LIMIT.one(query)
        most = USUAL if limit is None else limit
        firing = [alert(one) for one in read().alerts if one.firing]
        if since_s is None:
            return _told(firing, (), most)
        begin_s = since_s
        past = await answers.ask(
            history,
            lambda store: store.read(lambda connection: rows.within(connection, begin_s, most + 1)),
        )
        # A thousand alerts with their evidence are megabytes.
        return await asyncio.to_thread(_told, firing, past, most)

    return answers.route(PATH, PARAMETERS, alerts)


def _told(firing: list[ToldAlert], past: Iterable[ToldAlert], most: int) -> Body:
    """Put what fires first, each alert once: the history may be a moment behind."""
    known = {(one.fingerprint, one.starts_s) for one in firing}
    told = [*firing, *(one for one in past if (one.fingerprint, one.starts_s) not in known)]
    return Body.of(AlertsAnswer(told[:most], len(told) > most))
