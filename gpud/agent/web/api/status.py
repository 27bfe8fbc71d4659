"""/api/v1/status: everything of this moment, from the snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent import status
from gpud.agent.body import Body
from gpud.agent.web.api import answers
from gpud.agent.web.held import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/status"


def route(read: Callable[[], Snapshot], now: Callable[[], Instant]) -> Route:
    """Make the route. A snapshot is encoded once a second at the most, however many look at it."""
    held: Held[Body] | None = None

    async def document(_: QueryParams) -> Body:
        nonlocal held
        snapshot, at = read(), now()
        if held is None or not held.holds(at, snapshot):
            held = Held(Body.of(status.typed(snapshot, now=at)), at.mono_s, snapshot)
        return held.made

    return answers.route(PATH, (), document)
