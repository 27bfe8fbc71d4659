"""``gpud alerts test``: a test alert to one sink, or to all of them, without a running agent.

It is to be run as the agent's user: a sink that works for root may not work for the agent.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpud.agent import logs
from gpud.agent.alerts.message import Message
from gpud.agent.alerts.sink import Context, attempt, configured
from gpud.core.alerts import TEST, Alert, Severity
from gpud.core.settings import config_path
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpud.agent.alerts.sink import Sink
    from gpud.core.errors import DeliveryError
    from gpud.core.settings import Settings

WELL, FAILED, USAGE = 0, 1, 2
"""Exit codes, as every command has them."""


def run(settings: Settings, name: str | None = None) -> tuple[list[str], int]:
    """Send a test alert to the sink, or all sinks of the plug-in, called ``name``; None: to all.

    Gives what to print, harmless to show, and the exit code: 0 when all of them delivered, 1 when
    one did not, 2 when there is none of that name. Takes as long as ``[alerts] timeout_s``.
    """
    logs.configure(Path(settings.log_dir, "agent/agent.log"), level="info", quietly=True)
    context = Context(settings, os.uname().nodename, spawned=lambda: None)
    there = configured(context)
    chosen = [sink for sink in there.usable if name is None or _called(sink, name)]
    lines = [
        f"{escaped(plugin)}: not usable: {escaped(why)}"
        for plugin, why in sorted(there.refused.items())
        if name in {None, plugin}
    ]
    if not chosen:
        names = ", ".join(sink.name for sink in there.usable) or "none"
        missing = "no sink is configured"
        if name is not None:
            missing = f"{escaped(name)}: no such sink is configured, only {names}"
        fix = f"  fix: set it up in [alerts] of {config_path(settings.home)}"
        return [*lines, missing, fix], USAGE
    alert = Alert(
        name=TEST,
        severity=Severity.INFO,
        labels={},
        summary="a test of gpud's alerts; nothing is wrong",
        description="Somebody ran `gpud alerts test`. There is nothing to do.",
        starts_s=time.time(),
        updated_s=time.time(),
    )
    errors = asyncio.run(_sent(chosen, Message((alert,), (), (alert,)), context.timeout_s))
    for sink, error in zip(chosen, errors, strict=True):
        lines += _told(sink, error)
    refused = name in there.refused if name is not None else bool(there.refused)
    return lines, FAILED if any(errors) or refused else WELL


async def _sent(
    chosen: Sequence[Sink], message: Message, timeout_s: float
) -> list[DeliveryError | None]:
    return await asyncio.gather(*(attempt(sink, sink.send(message), timeout_s) for sink in chosen))


def _called(sink: Sink, name: str) -> bool:
    return sink.name == name or sink.name.rpartition("_")[0] == name


def _told(sink: Sink, error: DeliveryError | None) -> list[str]:
    if error is None and sink.shows:
        return [f"{sink.name}: {escaped(sink.place)} can be written; a shell shows its line once"]
    if error is None:
        return [f"{sink.name}: delivered to {escaped(sink.place)}"]
    lines = [f"{sink.name}: not delivered: {escaped(str(error))}"]
    output = [line for line in error.output.splitlines() if line.strip()]
    lines += [f"  it said: {escaped(line)}" for line in output]
    itself = error.fix is not None and error.fix.startswith(f"gpud alerts test {sink.name} runs")
    if error.fix and not itself:
        lines.append(f"  fix: {escaped(error.fix)}")
    return lines
