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

NAME = "log"

log = structlog.get_logger()


def create(context: Context) -> tuple[Sink, ...]:
    """Make the sink; it is there on every machine."""
    return (LogSink(Path(context.settings.log_dir, "agent/agent.log")),)


class LogSink:
    """The agent's log file, which whoever starts the agent has made by then."""

    shows = False

    def __init__(self, path: Path) -> None:
        self.name = NAME
        self.place = str(path)

    async def send(self, message: Message) -> None:
        """Write the lines, each with the fields that identify its alert."""
        if not os.access(self.place, os.W_OK):
            text = f"{self.place} is not there, or not to be written"
            raise DeliveryError(text, reason="no_log_file", fix="gpud restart makes it anew")
        write = {Severity.CRITICAL: log.error, Severity.WARNING: log.warning}
        for alert in (*message.firing, *message.resolved):
            level = write.get(alert.severity, log.info) if alert.firing else log.info
            level(
                "alert_firing" if alert.firing else "alert_resolved",
                alertname=alert.name,
                severity=alert.severity.value,
                labels=dict(alert.labels),
                summary=alert.summary,
                fix=alert.fix,
                fingerprint=alert.fingerprint,
                starts_s=alert.starts_s,
            )
