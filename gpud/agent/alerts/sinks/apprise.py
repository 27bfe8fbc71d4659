"""Chat, mail and push services by way of Apprise, which is an extra and never in this process."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpud.agent.alerts.message import body, title
from gpud.agent.alerts.sink import Program, numbered
from gpud.core.text import escaped
from gpud.install import manifest

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "apprise"


def create(context: Context) -> tuple[Sink, ...]:
    """Make a sink for each address."""
    urls = enumerate(context.settings.alerts.apprise_urls)
    return tuple(AppriseSink(context, numbered(NAME, number), url) for number, url in urls)


class AppriseSink:
    """A service that Apprise knows."""

    shows = False

    def __init__(self, context: Context, name: str, url: str) -> None:
        self.name = name
        self.place = place(url)
        self._context = context
        self._url = url
        fixes = {
            "no_apprise": f"{_installing()}, then gpud restart",
            "bad_url": "correct [alerts] apprise_urls in gpud.toml, then gpud restart",
        }
        otherwise = f"look at the service; gpud alerts test {name} tries it again"
        self._program = Program(context, f"{self.place}:", otherwise, fixes)

    async def send(self, message: Message) -> None:
        """Give Apprise title and text."""
        severity = message.firing[0].severity.value if message.firing else "resolved"
        job = {"kind": NAME, "url": self._url, "severity": severity, "body": body(message)}
        job["title"] = title(message, self._context.host)
        await self._program.send(job)


def place(url: str) -> str:
    """Name the kind of service and nothing else: any other part of an address may be its secret."""
    scheme, separator, _ = url.partition("://")
    return escaped(scheme[:32]) if separator and scheme.isalnum() else "an address"


def _installing() -> str:
    """Return the command that installs Apprise here; an installed environment has no pip."""
    if find_spec("pip") is None:
        return f"{manifest.owner()} --with apprise"
    return f"{sys.executable} -m pip install --require-hashes -r deploy/requirements-apprise.txt"
