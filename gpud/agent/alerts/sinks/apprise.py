"""Chat, mail and push services by way of Apprise, which is an extra and never in this process."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpud.agent.alerts.message import body, title
from gpud.agent.alerts.sender import Sender
from gpud.agent.alerts.sink import numbered
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "apprise"


def create(context: Context) -> tuple[Sink, ...]:
    """Make a sink for each address."""
    urls = context.settings.alerts.apprise_urls
    return tuple(_Apprise(context, name, url) for name, url in numbered(NAME, urls))


class _Apprise:
    shows = False

    def __init__(self, context: Context, name: str, url: str) -> None:
        self.name = name
        self.place = place(url)
        self._host = context.host
        self._job = {"kind": NAME, "url": url}
        fixes = {
            "no_apprise": f"{_installing()}, then gpud restart",
            "bad_url": "correct [alerts] apprise_urls in gpud.toml, then gpud restart",
        }
        otherwise = f"look at the service; gpud alerts test {name} tries it again"
        self._sender = Sender(context, self.place, fixes, otherwise)

    async def ready(self) -> None:
        """Have Apprise read the address, sending nothing."""
        await self._sender.run(self._job | {"check_only": True})

    async def send(self, message: Message) -> None:
        """Hand title and text over; what the service makes of them is Apprise's affair."""
        severity = message.firing[0].severity.value if message.firing else "resolved"
        texts = {"title": title(message, self._host), "body": body(message), "severity": severity}
        await self._sender.run(self._job | texts)


def place(url: str) -> str:
    """Name the kind of service and nothing else: any other part of an address may be its secret."""
    scheme, separator, _ = url.partition("://")
    return escaped(scheme[:32]) if separator and scheme.isalnum() else "an address"


def _installing() -> str:
    """Return the command that installs Apprise here; an installed environment has no pip."""
    if find_spec("pip") is None:
        return "deploy/install --with apprise"
    return f"{sys.executable} -m pip install --require-hashes -r deploy/requirements-apprise.txt"
