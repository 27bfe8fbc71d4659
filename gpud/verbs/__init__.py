"""Verbs that ask the running agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpud import client
from gpud.core.errors import NotRunningError
from gpud.place import running, start_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.core.requests import AnswerLine, ApiRequest
    from gpud.core.settings import Settings
    from gpud.place import Place


def ask(place: Place, settings: Settings, request: ApiRequest) -> Iterator[AnswerLine]:
    """Send a request to the agent and give the lines of its answer. Errors: as ``client.ask``."""
    run_dir = Path(settings.run_dir)
    try:
        yield from client.ask(run_dir, request)
    except NotRunningError as error:
        if running(run_dir):
            message = "gpud runs, but its agent does not answer"
            raise NotRunningError(message, fix="gpud status says why") from error
        stopped = " (stopped with gpud down)" if (run_dir / "stopped").exists() else ""
        message = f"gpud is not running{stopped}"
        raise NotRunningError(message, fix=start_command(place)) from error
