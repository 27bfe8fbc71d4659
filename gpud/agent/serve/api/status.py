"""/api/v1/status: everything of this moment, from the snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpud.agent.serve.api import answers
from gpud.agent.serve.http.response import Body, Cached
from gpud.agent.state import status

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.clock import Instant

PATH: Final = "/api/v1/status"


def route(read: Callable[[], Snapshot], now: Callable[[], Instant]) -> Route:
    """Make the route. A snapshot is encoded once a second at most, however many clients ask."""
    cached: Cached[Body] | None = None

    async def document(_: QueryParams) -> Body:
        nonlocal cached
        snapshot, at = read(), now()
        if cached is None or not cached.serves(at, snapshot):
            cached = Cached(Body.of(status.typed(snapshot, now=at)), at.mono_s, snapshot)
        return cached.value

    return answers.route(PATH, (), document)
