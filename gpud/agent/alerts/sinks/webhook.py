"""A webhook as Alertmanager calls it: what receives Alertmanager's alerts receives gpud's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpud.agent.alerts.message import document
from gpud.agent.alerts.sink import Program, numbered
from gpud.core.errors import DeliveryError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "webhook"
SUCCESS, REDIRECTION = 2, 3
"""The first digit of a status."""
CREDENTIALS: Final = "let [alerts] webhook_credentials_file name a file that gpud's user can read"
FIXES: Final = {
    "bad_url": "correct [alerts] webhook_urls in gpud.toml, then gpud restart",
    "no_credentials": CREDENTIALS,
    "no_such_host": "look at the host's name in [alerts] webhook_urls, and whether DNS works here",
    "refused": "start the receiver, or correct the port in [alerts] webhook_urls",
    "tls_failed": "the receiver's certificate must be one that this machine trusts",
}


def create(context: Context) -> tuple[Sink, ...]:
    """Make a sink for each address."""
    alerts = context.settings.alerts
    addresses = zip(alerts.webhook_urls, alerts.credentials_files, strict=True)
    return tuple(
        WebhookSink(context, numbered(NAME, number), url, file)
        for number, (url, file) in enumerate(addresses)
    )


class WebhookSink:
    """One address."""

    shows = False

    def __init__(self, context: Context, name: str, url: str, token_file: str) -> None:
        self.name = name
        self.place = place(url)
        self._context = context
        self._again = f"gpud alerts test {name} tries it again"
        otherwise = f"look at the network and the receiver; {self._again}"
        self._program = Program(context, f"{self.place}:", otherwise, FIXES)
        self._job = {"kind": NAME, "url": url, "token_file": token_file}

    async def send(self, message: Message) -> None:
        """Post the document; any 2xx is a delivery."""
        context = self._context
        url = context.settings.http.url
        content = document(message, host=context.host, receiver=f"gpud-{self.name}", url=url)
        job = self._job | {"body": json.dumps(content)}
        status = (await self._program.send(job))["status"]
        if status // 100 == SUCCESS:
            return
        words, fix = "", f"look at the receiver; {self._again}"
        if status // 100 == REDIRECTION:
            words, fix = (
                ", which is not followed",
                "name the final address in [alerts] webhook_urls",
            )
        elif status in {401, 403}:
            words, fix = ": it wants other credentials", CREDENTIALS
        text = f"{self.place} answers {status}{words}"
        raise DeliveryError(text, reason=f"http_{status}", fix=fix)


def place(url: str) -> str:
    """Name the host and the port of an address, and nothing else of it: the rest may be secret."""
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port
    except ValueError:
        return "an address that cannot be read"
    shown = escaped(host or "no host")
    return shown if port is None else f"{shown}:{port}"
