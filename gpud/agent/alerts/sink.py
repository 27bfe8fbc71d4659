"""What an alert sink is, and what it gets to know.

Each public module in ``gpud.agent.alerts.sinks`` makes sinks: it defines its ``NAME`` and
``create(context)``, which gives one for each address, none where nothing is configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpud.core.message import Message
    from gpud.core.settings import Settings

OFFERS = ("NAME", "create")


@dataclass(frozen=True, slots=True)
class Context:
    """What every sink may use. ``spawned`` is to be called for each process it starts."""

    settings: Settings
    host: str
    spawned: Callable[[], None]

    @property
    def url(self) -> str:
        """Where gpud answers, for the links in a message."""
        return self.settings.http.url


class Sink(Protocol):
    """One way of telling people.

    ``name`` is what metrics and settings call it, ``place`` whom or what it reaches: a host, a
    program, never an address with its secrets. ``shows``: it holds a state up (a line in a file)
    and is told whenever that changes; the others are sent messages.
    """

    name: str
    place: str
    shows: bool

    async def ready(self) -> None:
        """Look whether it could deliver, sending nothing. ``Errors: DeliveryError``."""

    async def send(self, message: Message) -> None:
        """Deliver, within ``[alerts] timeout_s``. ``Errors: DeliveryError``.

        Whatever may wait (a network, a program, a drive of Windows) waits in a process of its own.
        """


def numbered(name: str, addresses: Iterable[str]) -> list[tuple[str, str]]:
    """Name each address of one plug-in: "webhook", "webhook_2"."""
    return [
        (name if place == 1 else f"{name}_{place}", address)
        for place, address in enumerate(addresses, start=1)
    ]
