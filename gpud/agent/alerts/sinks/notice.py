"""The shell's notice: one line in a file, which the next shell that is opened shows once.

How a shell reads it, and what it lets through, is in docs/shell.md and the snippets.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpud.agent.alerts.message import ascii_line
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
        return ascii_line(message.standing[0].summary, LONGEST - len(hint)) + hint
    if message.resolved:
        latest = max(message.resolved, key=lambda alert: alert.ends_s or 0.0)
        return ascii_line(f"resolved: {latest.summary}", LONGEST)
    return ""


class NoticeSink:
    """The file, in which the worst of what fires stands."""

    shows = True

    def __init__(self, path: Path) -> None:
        self.name = NAME
        self.place = str(path)

    async def send(self, message: Message) -> None:
        """Write the line over what is there: first the line, then the end of the file.

        A shell that reads between the two sees the new line and takes the first one only. The file
        lies in memory; no disk is waited for. A test leaves there what a person should know.
        """
        text = line(message).encode("ascii")
        test = bool(message.standing) and all(a.name == TEST for a in message.standing)
        # gpud's root part has made it, and a run without root has none yet.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.place, flags, 0o644)
        except OSError as error:
            raise self._failed(error) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DeliveryError(
                    f"{self.place} is no plain file",
                    reason="no_file",
                    fix="delete it, then gpud restart",
                )
            before = os.pread(descriptor, LONGEST + 2, 0).rstrip(b"\n")
            if before == text or (test and before):
                return
            os.pwrite(descriptor, text + b"\n", 0)
            os.ftruncate(descriptor, len(text) + 1 if text else 0)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            os.close(descriptor)

    def _failed(self, error: OSError) -> DeliveryError:
        return DeliveryError(
            f"{self.place} cannot be written: {error.strerror}",
            reason="cannot_write",
            fix="gpud restart makes it anew",
        )
