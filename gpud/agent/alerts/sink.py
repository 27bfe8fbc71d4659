"""The interface of an alert sink, and the sinks that the settings configure.

A sink is one public module of ``gpud.agent.alerts.sinks``. It defines its ``NAME`` and
``create(context)``, which returns one sink for each address, none where nothing is configured.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from gpud import discovery
from gpud.agent import children
from gpud.agent.alerts import sinks as folder
from gpud.core.errors import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any

    from gpud.agent.alerts.message import Message
    from gpud.core.settings import Settings

TIMEOUT_S: Final = 10.0
"""The deadline of one delivery: name lookup, connection, TLS and answer together."""
OFFERS: Final = ("NAME", "create")
CLEANUP_S: Final = 2 * children.GRACE_S
"""What a sink may need beyond its deadline to end the process that it started."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Context:
    """What every sink may use. ``spawned`` is called for each process that one starts."""

    settings: Settings
    host: str
    spawned: Callable[[], None]
    timeout_s: float = TIMEOUT_S

    @property
    def url(self) -> str:
        """The address of gpud, for the links in a message."""
        return self.settings.http.url


class Sink(Protocol):
    """One way to tell people.

    ``name`` is its name in metrics and settings. ``place`` is what it reaches: a host or a program,
    never an address with its secrets. ``shows``: it displays a state (a line in a file) and is sent
    whatever changes that; the others are sent messages.
    """

    name: str
    place: str
    shows: bool

    async def ready(self) -> None:
        """Check whether it could deliver, without sending. Errors: ``DeliveryError``."""

    async def send(self, message: Message) -> None:
        """Deliver within ``timeout_s`` of the context. Errors: ``DeliveryError``.

        Whatever may block (a network, a program, a drive of Windows) runs in its own process.
        """


@dataclass(frozen=True, slots=True)
class Sinks:
    """The sinks that are configured, and by plug-in why others cannot be used."""

    usable: tuple[Sink, ...]
    refused: Mapping[str, str]


def configured(context: Context) -> Sinks:
    """Make every sink that is configured and not disabled."""
    modules, broken = discovery.modules(folder, OFFERS)
    disabled = set(context.settings.alerts.disabled)
    refused = {name: why for name, why in broken.items() if name not in disabled}
    for name in disabled - modules.keys() - broken.keys():
        only = ", ".join(sorted(modules))
        refused[name] = f"[alerts] disabled: there is no such sink, only {only}"
    usable: list[Sink] = []
    for name, module in modules.items():
        if name not in disabled:
            usable += module.create(context)
    return Sinks(tuple(usable), refused)


def numbered(name: str, addresses: Iterable[str]) -> list[tuple[str, str]]:
    """Name the sink of each address of one plug-in: "webhook", "webhook_2"."""
    return [
        (name if number == 1 else f"{name}_{number}", address)
        for number, address in enumerate(addresses, start=1)
    ]


async def attempt(
    sink: Sink, work: Coroutine[Any, Any, None], timeout_s: float
) -> DeliveryError | None:
    """Await what a sink does and return why it failed, whatever a plug-in may raise."""
    try:
        async with asyncio.timeout(timeout_s + CLEANUP_S):
            await work
    except DeliveryError as error:
        return error
    except TimeoutError:
        return DeliveryError(f"{sink.place}: no end after {timeout_s:g} s", reason="timed_out")
    except Exception as error:  # noqa: BLE001  # its text may hold an address with its secrets
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        line = "" if trace is None else f" in line {trace.tb_lineno}"
        what = f"{type(error).__name__}{line} of its module"
        log.error("sink_crashed", sink=sink.name, error=what)  # noqa: TRY400  # as above
        fix = "this is a bug in gpud; the log has its place"
        return DeliveryError(f"{sink.place}: {what}", reason="crashed", fix=fix)
    return None
