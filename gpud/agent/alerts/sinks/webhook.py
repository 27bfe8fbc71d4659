"""A webhook as Alertmanager calls it: what receives Alertmanager's alerts receives gpud's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpud.agent.alerts.document import document
from gpud.agent.alerts.sender import Sender
from gpud.agent.alerts.sink import numbered
from gpud.core.errors import DeliveryError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "webhook"
SUCCESS, REDIRECTION, SERVER_ERROR = 2, 3, 5
"""The first digit of a status."""
LATER: Final = frozenset({408, 425, 429})
"""Refusals that say "not now"; every other 4xx is an answer to the message itself."""
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
    urls = context.settings.alerts.webhook_urls
    files = context.settings.alerts.credentials_files
    return tuple(
        _Webhook(context, name, url, file)
        for (name, url), file in zip(numbered(NAME, urls), files, strict=True)
    )


class _Webhook:
    shows = False

    def __init__(self, context: Context, name: str, url: str, token_file: str) -> None:
        self.name = name
        self.place = place(url)
        self._context = context
        self._job = {"kind": NAME, "url": url, "token_file": token_file}
        self._again = f"gpud alerts test {name} tries it again"
        otherwise = f"look at the network and the receiver; {self._again}"
        self._sender = Sender(context, self.place, FIXES, otherwise)

    async def ready(self) -> None:
        """Have the token read, where there is to be one; the receiver is asked by a delivery."""
        if self._job["token_file"]:
            await self._sender.run(self._job | {"check_only": True})

    async def send(self, message: Message) -> None:
        """Post the document; any 2xx is a delivery."""
        context = self._context
        content = document(
            message, instance=context.host, receiver=f"gpud-{self.name}", url=context.url
        )
        result = await self._sender.run(self._job | {"body": json.dumps(content)})
        self._check(result["status"])

    def _check(self, status: int) -> None:
        kind = status // 100
        if kind == SUCCESS:
            return
        again = kind == SERVER_ERROR or status in LATER
        look = f"look at the receiver; {self._again}"
        if kind == REDIRECTION:
            words, fix = "which is not followed", "name the final address in [alerts] webhook_urls"
        elif status in {401, 403}:
            words, fix = "it wants other credentials", CREDENTIALS
        elif again:
            words, fix = "it is asked again later", look
        else:
            words, fix = "it does not take this message", look
        raise DeliveryError(
            f"{self.place} answers {status}: {words}", reason=f"http_{status}", fix=fix, again=again
        )


def place(url: str) -> str:
    """Name the host and the port of an address, and nothing else of it: the rest may be secret."""
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port
    except ValueError:
        return "an address that cannot be read"
    shown = escaped(host or "no host")
    return shown if port is None else f"{shown}:{port}"
