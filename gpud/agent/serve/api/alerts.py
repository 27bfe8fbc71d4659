"""/api/v1/alerts: what fires now, from the snapshot; with ``since`` also what fired since then.

The past is read from the history beside its writer, what began last first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts import rows
from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import AlertsAnswer
from gpud.agent.serve.api.queries import count, moment
from gpud.agent.serve.http.response import Body
from gpud.agent.state.statusdocument import ToldAlert, alert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.history.store import History
    from gpud.agent.state.snapshot import Snapshot

PATH: Final = "/api/v1/alerts"
USUAL: Final = 100

SINCE: Final = moment("since", "also what fired at any time since then")
LIMIT: Final = count(
    "limit", "how many at the most, what began last first", usual=USUAL, most=rows.MOST
)
PARAMETERS: Final = (SINCE, LIMIT)


def route(read: Callable[[], Snapshot], history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason.

    What fires is in the snapshot: without ``since`` no disk is needed.
    """

    async def alerts(query: QueryParams) -> Body:
        since_s, limit = SINCE.value(query), LIMIT.value(query) or USUAL
        firing = [alert(each) for each in read().alerts if each.firing]
        if since_s is None:
            return _answer(firing, (), limit)
        past = await answers.read(history, rows.within, since_s, limit + 1)
        # A thousand alerts with their evidence are megabytes.
        return await asyncio.to_thread(_answer, firing, past, limit)

    return answers.route(PATH, PARAMETERS, alerts)


def _answer(firing: list[ToldAlert], past: Iterable[ToldAlert], limit: int) -> Body:
    """List what fires first, and each alert once: the history may be a moment behind."""
    current = {(each.fingerprint, each.starts_s) for each in firing}
    listed = [*firing, *(each for each in past if (each.fingerprint, each.starts_s) not in current)]
    return Body.of(AlertsAnswer(listed[:limit], len(listed) > limit))
