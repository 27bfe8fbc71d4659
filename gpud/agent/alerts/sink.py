"""The interface of an alert sink, the sinks that the settings configure, and a test of them.

A sink is one public module of ``gpud.agent.alerts.sinks``. It defines its ``NAME`` and
``create(context)``, which returns one sink for each address, none where nothing is configured.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import structlog

from gpud import discovery, logs
from gpud.agent import children
from gpud.agent.alerts import sinks as folder
from gpud.agent.alerts.message import Message
from gpud.core.alerts import TEST, Alert, Severity
from gpud.core.errors import DeliveryError
from gpud.core.settings import Settings, config_path
from gpud.core.text import escaped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gpud.core.report import ProcessRef

TIMEOUT_S: Final = 10.0
"""The deadline of one delivery: name lookup, connection, TLS and answer together."""
PRINTED: Final = 400
"""Bytes of a program's output that are shown."""
OFFERS: Final = ("NAME", "create")
SEND: Final = (sys.executable, "-I", "-m", "gpud.agent.alerts.send")

log = structlog.get_logger()


class Context(msgspec.Struct, frozen=True):
    """What every sink may use. ``spawned`` is called for each process that one starts."""

    settings: Settings
    host: str
    spawned: Callable[[], None]
    timeout_s: float = TIMEOUT_S


class Sink(Protocol):
    """One way to reach people.

    ``name`` is its name in metrics and settings. ``place`` is what it reaches: a host or a program,
    never an address with its secrets. ``shows``: it displays a state (a line in a file) and is sent
    whatever changes that; the others are sent messages.
    """

    name: str
    place: str
    shows: bool

    async def send(self, message: Message) -> None:
        """Deliver within ``timeout_s`` of the context. Errors: ``DeliveryError``.

        Whatever may block (a network, a program, a drive of Windows) runs in its own process.
        """


class Sinks(msgspec.Struct, frozen=True):
    """The sinks that are configured, and by plug-in why others cannot be used."""

    usable: tuple[Sink, ...]
    refused: Mapping[str, str]


def configured(context: Context) -> Sinks:
    """Make every sink that is configured and not disabled."""
    modules, broken = discovery.modules(folder, OFFERS)
    disabled = set(context.settings.alerts.disabled)
    refused = {name: why for name, why in broken.items() if name not in disabled}
    only = ", ".join(sorted(modules))
    for name in disabled - modules.keys() - broken.keys():
        refused[name] = f"[alerts] disabled: there is no such sink, only {only}"
    used = [module for name, module in modules.items() if name not in disabled]
    return Sinks(tuple(sink for module in used for sink in module.create(context)), refused)


def numbered(name: str, number: int) -> str:
    """Name the sink of an address of a plug-in, counted from 0: "webhook", "webhook_2"."""
    return f"{name}_{number + 1}" if number else name


async def attempt(sink: Sink, message: Message) -> DeliveryError | None:
    """Send a message and return why it was not delivered, whatever a plug-in may raise."""
    try:
        await sink.send(message)
    except DeliveryError as error:
        return error
    except Exception as error:  # noqa: BLE001  # its text may hold an address with its secrets
        what = f"{type(error).__name__} in its module"
        log.error("sink_crashed", sink=sink.name, error=what)  # noqa: TRY400  # as above
        fix = "this is a bug in gpud; gpud alerts test tries it again"
        return DeliveryError(f"{sink.place}: {what}", reason="crashed", fix=fix)
    return None


class Program:
    """A program that a sink starts: one at a time, killed at the deadline (ADR 19).

    One that was killed and stays, in the kernel or with Windows, keeps the next one waiting.
    ``fixes`` are by reason; any other reason has the fix ``otherwise``.
    """

    def __init__(
        self, context: Context, name: str, otherwise: str, fixes: Mapping[str, str] | None = None
    ) -> None:
        self._context = context
        self._name = name
        self._otherwise = otherwise
        self._fixes = fixes or {}
        self._last: ProcessRef | None = None  # the last one that was started

    async def run(self, start: Callable[..., Awaitable[children.Ended]]) -> children.Ended:
        """Await ``start`` with a deadline and ``started``. Errors: ``DeliveryError``."""
        if self._last is not None and (state := children.condition(self._last)) is not None:
            raise self.failure("stuck", f"was killed the last time and is still there ({state})")
        self._context.spawned()
        deadline_s = self._context.timeout_s
        try:
            ended = await start(deadline_s=deadline_s, started=self._began)
        except OSError as error:
            raise self.failure("spawn_failed", f"cannot be started: {error.strerror}") from error
        if ended.overflowed:
            words = f"said more than {children.STDOUT_BYTES} bytes and was ended"
            raise self.failure("too_talkative", words, printed(ended))
        if ended.killed:
            words = f"was not done after {deadline_s:g} s"
            raise self.failure("timed_out", words, printed(ended))
        return ended

    def _began(self, process: ProcessRef) -> None:
        self._last = process

    async def send(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a job of ``gpud.agent.alerts.send`` and return its result.

        Errors: ``DeliveryError``.
        """
        content = json.dumps(job | {"timeout_s": self._context.timeout_s}).encode()
        ended = await self.run(partial(children.run, SEND, content))
        try:
            result: dict[str, Any] = json.loads(ended.stdout)
        except ValueError:
            words = f"the process that sends ended with {ended.code}"
            raise self.failure("crashed", words) from None
        if "reason" in result:
            raise self.failure(str(result["reason"]), str(result["detail"]))
        return result

    def failure(
        self, reason: str, words: str, output: str = "", fix: str | None = None
    ) -> DeliveryError:
        """Return the error that the program did not deliver, with what it printed."""
        lines = "\n".join(escaped(line) for line in output.splitlines())
        text = f"{self._name} {escaped(words)}"
        return DeliveryError(
            text, reason=reason, fix=fix or self._fixes.get(reason, self._otherwise), output=lines
        )


def printed(ended: children.Ended) -> str:
    """Return the end of what a program printed, of its errors where there are any."""
    return (ended.stderr or ended.stdout).decode(errors="replace")[-PRINTED:]


def run_test(settings: Settings, name: str | None = None) -> tuple[list[str], int]:
    """Send a test alert to the sink, or all sinks of the plug-in, called ``name``; None: to all.

    It is `gpud alerts test`, without a running agent, to be run as the agent's user: a sink that
    works for root may not work for the agent. Returns what to print, harmless to show, and the exit
    code: 0 when all of them delivered, 1 when one did not, 2 when there is none of that name.
    """
    logs.configure(Path(settings.log_dir, "agent/agent.log"), level="info", terminal=False)
    context = Context(settings, os.uname().nodename, spawned=lambda: None)
    sinks = configured(context)
    chosen = [s for s in sinks.usable if name in {None, s.name, s.name.rpartition("_")[0]}]
    refused = {plugin: why for plugin, why in sinks.refused.items() if name in {None, plugin}}
    lines = [f"{escaped(n)}: not usable: {escaped(why)}" for n, why in sorted(refused.items())]
    if not chosen:
        names = ", ".join(sink.name for sink in sinks.usable) or "none"
        missing = "no sink is configured"
        if name is not None:
            missing = f"{escaped(name)}: no such sink is configured, only {names}"
        fix = f"  fix: set it up in [alerts] of {config_path(settings.home)}"
        return [*lines, missing, fix], 2
    alert = Alert(
        name=TEST,
        severity=Severity.INFO,
        labels={},
        summary="a test of gpud's alerts; nothing is wrong",
        description="Somebody ran `gpud alerts test`. There is nothing to do.",
        starts_s=time.time(),
        updated_s=time.time(),
    )

    async def send() -> list[DeliveryError | None]:
        message = Message((alert,), (), (alert,))
        attempts = (attempt(sink, message) for sink in chosen)
        return await asyncio.gather(*attempts)

    errors = asyncio.run(send())
    for sink, error in zip(chosen, errors, strict=True):
        lines += _result(sink, error)
    return lines, 1 if any(errors) or refused else 0


def _result(sink: Sink, error: DeliveryError | None) -> list[str]:
    if error is None and sink.shows:
        return [f"{sink.name}: {escaped(sink.place)} can be written; a shell shows its line once"]
    if error is None:
        return [f"{sink.name}: delivered to {escaped(sink.place)}"]
    lines = [f"{sink.name}: not delivered: {escaped(str(error))}"]
    output = [line for line in error.output.splitlines() if line.strip()]
    lines += [f"  it said: {escaped(line)}" for line in output]
    if error.fix and not error.fix.startswith(f"gpud alerts test {sink.name} runs"):
        lines.append(f"  fix: {escaped(error.fix)}")
    return lines
