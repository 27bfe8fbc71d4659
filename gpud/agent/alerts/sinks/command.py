"""A program of the person's own: its arguments from the settings, the alerts on its stdin."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.agent.alerts.message import document
from gpud.agent.alerts.sink import Program, printed
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "command"
BECOME: Final = ("/usr/bin/nice", "-n", "0", "--")
"""It lies on the distribution's own disk and becomes the program, which may lie on a drive of
Windows: executing one there directly blocks for as long as the drive does not answer."""
LOOK: Final = "gpud alerts test command runs it and shows what it says"
CORRECT: Final = (
    "correct the path in [alerts] command, or make the file executable for gpud's user; "
    "gpud alerts test command tries it again"
)


def create(context: Context) -> tuple[Sink, ...]:
    """Make the sink where a program is named."""
    command = context.settings.alerts.command
    return (CommandSink(context, command),) if command else ()


class CommandSink:
    """One program."""

    shows = False

    def __init__(self, context: Context, command: tuple[str, ...]) -> None:
        self.name = NAME
        self.place = escaped(command[0])
        self._context = context
        self._command = command
        self._program = Program(context, self.place, LOOK)

    async def send(self, message: Message) -> None:
        """Run it with Alertmanager's document on stdin; exit code 0 is a delivery.

        It gets no variable of gpud's. At the deadline it is killed with what it has started.
        """
        context, url = self._context, self._context.settings.http.url
        content = document(message, host=context.host, receiver=f"gpud-{NAME}", url=url)
        start = partial(
            children.run, (*BECOME, *self._command), json.dumps(content).encode() + b"\n"
        )
        ended = await self._program.run(start)
        output = printed(ended)
        if ended.code in {children.CANNOT_EXECUTE, children.NOT_THERE}:
            words = "cannot be executed, or is not there"
            raise self._program.failure("cannot_execute", words, output, CORRECT)
        if code := ended.code:
            end = (
                f"was ended by {children.signal_name(-code)}" if code < 0 else f"ended with {code}"
            )
            raise self._program.failure("failed", end, output)
