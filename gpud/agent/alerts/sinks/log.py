"""The log: one line for each alert, for people who look later and for programs that read logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gpud.core.alerts import Severity
from gpud.core.errors import DeliveryError

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink
    from gpud.core.alerts import Alert

NAME = "log"

log = structlog.get_logger()


def create(context: Context) -> tuple[Sink, ...]:
    """Make the sink; it is there on every machine."""
    return (_Log(Path(context.settings.log_dir, "agent/agent.log")),)


class _Log:
    shows = False

    def __init__(self, path: Path) -> None:
        self.name = NAME
        self.place = str(path)

    async def ready(self) -> None:
        """Look for the file, which whoever starts the agent has made by then."""
        if not os.access(self.place, os.W_OK):
            raise DeliveryError(
                f"{self.place} is not there, or not to be written",
                reason="no_log_file",
                fix="gpud restart makes it anew",
            )

    async def send(self, message: Message) -> None:
        """Write the lines, each with the fields by which alerts are told apart."""
        await self.ready()
        for alert in message.firing:
            say = {Severity.CRITICAL: log.error, Severity.WARNING: log.warning}.get(
                alert.severity, log.info
            )
            say("alert_firing", **_fields(alert))
        for alert in message.resolved:
            log.info("alert_resolved", **_fields(alert))


def _fields(alert: Alert) -> dict[str, object]:
    return {
        "alertname": alert.name,
        "severity": alert.severity.value,
        "labels": dict(alert.labels),
        "summary": alert.summary,
        "fix": alert.fix,
        "fingerprint": alert.fingerprint,
        "starts_s": alert.starts_s,
    }
