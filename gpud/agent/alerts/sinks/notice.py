"""The shell's notice: one line in a file, which the next shell that is opened shows once.

How a shell reads it, and what it lets through, is in docs/shell.md and the snippets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts.message import cut
from gpud.core.alerts import TEST
from gpud.core.errors import DeliveryError

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "notice"
LONGEST: Final = 299
"""Characters that a shell shows, less the line feed."""


def create(context: Context) -> tuple[Sink, ...]:
    """Make the sink; it is there on every machine."""
    return (NoticeSink(Path(context.settings.run_dir, "notice")),)


def line(message: Message) -> str:
    """Say what fires, the worst of it and how much more there is; else what ended lately."""
    if message.standing:
        more = len(message.standing) - 1
        hint = f" (and {more} more: gpud alerts)" if more else ""
        return cut(_ascii(message.standing[0].summary), LONGEST - len(hint)) + hint
    if message.resolved:
        latest = max(message.resolved, key=lambda alert: alert.ends_s or 0.0)
        return cut(_ascii(f"resolved: {latest.summary}"), LONGEST)
    return ""


def _ascii(text: str) -> str:
    """Write a summary, which is one line already, for any terminal."""
    return text.replace("\N{MICRO SIGN}", "u").encode("ascii", "replace").decode()


class NoticeSink:
    """The file, in which the worst of what fires stands."""

    shows = True

    def __init__(self, path: Path) -> None:
        self.name = NAME
        self.place = str(path)

    async def send(self, message: Message) -> None:
        """Write the line; the file lies in memory, so no disk is waited for."""
        test = bool(message.standing) and all(a.name == TEST for a in message.standing)
        try:
            _write(self.place, line(message).encode("ascii"), test=test)
        except OSError as error:
            raise DeliveryError(
                f"{self.place} cannot be written: {error.strerror}",
                reason="cannot_write",
                fix="gpud restart makes it anew",
            ) from error


def _write(path: str, text: bytes, *, test: bool) -> None:
    """Write the line over what is there: first the line, then the end of the file.

    A shell that reads between the two sees the new line and takes the first one only. gpud's root
    part has made the file, and a run without root has none yet. A test leaves there what fires.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "r+b", buffering=0) as file:  # noqa: PTH123  # as above
        before = os.pread(file.fileno(), LONGEST + 2, 0).rstrip(b"\n")  # fails for a pipe
        if before != text and not (test and before):
            file.write(text + b"\n")
            file.truncate(len(text) + 1 if text else 0)
