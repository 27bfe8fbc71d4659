"""/api/v1/status: everything of this moment, from the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpud.agent import status
from gpud.agent.body import Body
from gpud.agent.web.api import answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams
    from starlette.routing import Route

    from gpud.core.clock import Instant
    from gpud.core.snapshot import Snapshot

PATH: Final = "/api/v1/status"
HOLDS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer, and what it was made of."""

    snapshot: Snapshot
    at: Instant
    body: Body


def route(read: Callable[[], Snapshot], now: Callable[[], Instant]) -> Route:
    """Make the route. A snapshot is encoded once a second at the most, however many look at it."""
    made: _Made | None = None

    async def document(_: QueryParams) -> Body:
        nonlocal made
        snapshot, at = read(), now()
        if (
            made is None
            or made.snapshot is not snapshot
            or not 0 <= at.mono_s - made.at.mono_s < HOLDS_S
        ):
            made = _Made(snapshot, at, Body.of(status.typed(snapshot, now=at)))
        return made.body

    return answers.route(PATH, (), document)
