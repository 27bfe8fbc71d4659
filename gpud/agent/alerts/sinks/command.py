"""A program of the person's own: its arguments from the settings, the alerts on its stdin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from gpud.agent import children
from gpud.agent.alerts.message import document
from gpud.core.errors import DeliveryError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "command"
BECOME: Final = ("/usr/bin/nice", "-n", "0", "--")
"""It lies on the distribution's own disk and becomes the program, which may lie on a drive of
Windows: executing one there directly blocks for as long as the drive does not answer."""
SHOWN = 400
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
        self._left = children.Left()

    async def send(self, message: Message) -> None:
        """Run it with Alertmanager's document on stdin; exit code 0 is a delivery.

        It gets no variable of gpud's. At the deadline it is killed with what it has started.
        """
        context, url = self._context, self._context.settings.http.url
        content = document(message, host=context.host, receiver=f"gpud-{NAME}", url=url)
        if (state := self._left.condition()) is not None:
            raise self._failed("stuck", f"was killed the last time and is still there ({state})")
        context.spawned()
        try:
            ended = await children.run(
                (*BECOME, *self._command),
                json.dumps(content).encode() + b"\n",
                deadline_s=context.timeout_s,
                end_talkative=True,
                started=self._left.began,
                with_group=True,
            )
        except OSError as error:
            raise self._failed("spawn_failed", f"cannot be started: {error}") from error
        self._left.ended(ended)
        if ended.code != 0 or ended.killed:
            raise self._failure(ended)

    def _failure(self, ended: children.Ended) -> DeliveryError:
        output = (ended.stderr or ended.stdout).decode(errors="replace")[-SHOWN:]
        output = "\n".join(escaped(line) for line in output.splitlines())
        if ended.overflowed:
            words = f"said more than {children.STDOUT_BYTES} bytes and was ended"
            return self._failed("too_talkative", words)
        if ended.killed:
            words = f"had not ended after {self._context.timeout_s:g} s"
            return self._failed("timed_out", words, output)
        if ended.code in {children.CANNOT_EXECUTE, children.NOT_THERE}:
            words = "cannot be executed, or is not there"
            return self._failed("cannot_execute", words, output, CORRECT)
        signalled = ended.code is not None and ended.code < 0
        end = f"was ended by {children.signal_name(-(ended.code or 0))}" if signalled else ""
        return self._failed("failed", end or f"ended with {ended.code}", output)

    def _failed(self, reason: str, words: str, output: str = "", fix: str = LOOK) -> DeliveryError:
        text = f"{self.place} {escaped(words)}"
        return DeliveryError(text, reason=reason, fix=fix, output=output)
