"""One route on a history in a folder, served over a real socket."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette

from gpud.agent.history.store import History
from gpud.agent.serve.http.listener import bind, serve
from tests.agent.serve.http.test_web import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.routing import Route

    from gpud.agent.history.store import Store

T = TypeVar("T")


class ServedHistory:
    """A history and the route that answers from it, in a thread with a loop of its own."""

    def __init__(self, folder: Path, make_route: Callable[[History], Route]) -> None:
        self._listener = bind("127.0.0.1", 0)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._history = History(folder)
        self._route = make_route(self._history)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])
        self._thread.start()

    async def _serve(self) -> None:
        await serve(Starlette(routes=[self._route]), self._listener, self._stop)
        await self._history.close()

    def write(self, question: Callable[[Store], T]) -> T:
        """Have the history's own thread do something."""
        asked = asyncio.run_coroutine_threadsafe(self._history.ask(question), self._loop)
        return asked.result(10)

    def ask(self, **query: str | list[str]) -> tuple[int, dict[str, Any]]:
        port = self._listener.getsockname()[1]
        code, _, body = ask(port, f"{self._route.path}?{urlencode(query, doseq=True)}")
        return code, json.loads(body)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._listener.close()
        self._loop.close()
