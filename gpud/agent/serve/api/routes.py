"""Routes of the API that need more than a snapshot, or other settings than those of HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpud.agent.serve.api import alerts, events, history, probes

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.routing import Route

    from gpud.agent.history.store import History
    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.settings import Settings


def routes(
    read: Callable[[], Snapshot], store: History, settings: Settings, now_s: Callable[[], float]
) -> list[Route]:
    """Make the routes. ``now_s`` gives Unix time."""
    return [
        alerts.route(read, store),
        events.route(store),
        probes.route(read, settings.schedule),
        history.route(history.Charts(settings.state_dir), read, now_s),
    ]
