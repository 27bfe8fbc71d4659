"""/api/v1/events: what happened to driver and machine, read from the history beside its writer.

Newest first, because what happened last is what one asks about and a limit cuts off the rest.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpud.agent.history import queries
from gpud.agent.history.queries import MOST_EVENTS, Window
from gpud.agent.regression import commands
from gpud.agent.regression.changes import KINDS
from gpud.agent.serve.api import answers
from gpud.agent.serve.api.documents import EventsAnswer
from gpud.agent.serve.api.queries import Unusable, choice, count, moment
from gpud.agent.serve.http.response import Body
from gpud.agent.state.presence import GPU_FORGOTTEN, GPU_SEEN

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.history.store import History

PATH: Final = "/api/v1/events"
USUAL: Final = 100
EVENT_KINDS: Final = (*KINDS, GPU_SEEN, GPU_FORGOTTEN, *commands.KINDS, commands.PROBE_REQUESTED)

SINCE: Final = moment("since", "from when on")
UNTIL: Final = moment("until", "until when")
KIND: Final = choice("kind", "only events of these kinds", EVENT_KINDS)
LIMIT: Final = count(
    "limit", "how many at the most, the newest of them", usual=USUAL, most=MOST_EVENTS
)
PARAMETERS: Final = (SINCE, UNTIL, KIND, LIMIT)


def route(history: History) -> Route:
    """Make the route. A history that cannot be read is a 503 with its reason."""

    async def events(query: QueryParams) -> Body:
        window = parsed(query)
        # One more than asked for shows whether there are more.
        larger = replace(window, limit=window.limit + 1)
        entries = await answers.read(history, queries.events, larger)
        listed = [
            {**entry.body, "kind": entry.kind, "at_s": entry.at_s}
            for entry in entries[: window.limit]
        ]
        answer = EventsAnswer(listed, len(entries) > window.limit)
        return await asyncio.to_thread(Body.of, answer)

    return answers.route(PATH, PARAMETERS, events)


def parsed(query: QueryParams) -> Window:
    """Read the query. Errors: ``Unusable``."""
    since_s, until_s = SINCE.value(query), UNTIL.value(query)
    if since_s is not None and until_s is not None and since_s > until_s:
        raise Unusable("since", "since is later than until", "exchange the two", "bad_range")
    return Window(since_s, until_s, KIND.all(query), LIMIT.value(query) or USUAL)
