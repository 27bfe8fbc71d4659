"""Chat, mail and push services by way of Apprise, which is an extra and never in this process."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from gpud.agent import children
from gpud.agent.alerts.message import body, title
from gpud.agent.alerts.sink import numbered
from gpud.core.errors import DeliveryError
from gpud.core.text import escaped

if TYPE_CHECKING:
    from gpud.agent.alerts.message import Message
    from gpud.agent.alerts.sink import Context, Sink

NAME = "apprise"
COMMAND: Final = (sys.executable, "-I", "-m", "gpud.agent.alerts.apprise_send")
WORDS: Final = {
    "no_apprise": "Apprise is not installed",
    "bad_url": "Apprise knows no service for this address",
    "not_taken": "the service did not take it",
}


def create(context: Context) -> tuple[Sink, ...]:
    """Make a sink for each address."""
    urls = context.settings.alerts.apprise_urls
    return tuple(_Apprise(context, name, url) for name, url in numbered(NAME, urls))


class _Apprise:
    shows = False

    def __init__(self, context: Context, name: str, url: str) -> None:
        self.name = name
        self.place = place(url)
        self._context = context
        self._url = url

    async def ready(self) -> None:
        """Have Apprise read the address, sending nothing."""
        await self._run({"only_look": True})

    async def send(self, message: Message) -> None:
        """Hand title and text over; what the service makes of them is Apprise's affair."""
        severity = message.firing[0].severity.value if message.firing else "resolved"
        told = {
            "title": title(message, self._context.host),
            "body": body(message),
            "severity": severity,
        }
        await self._run(told)

    async def _run(self, job: dict[str, Any]) -> None:
        timeout_s = self._context.timeout_s
        job |= {"url": self._url, "timeout_s": timeout_s}
        self._context.spawned()
        try:
            ended = await children.run(COMMAND, json.dumps(job).encode(), deadline_s=timeout_s)
        except OSError as error:
            raise self._failed("spawn_failed", f"no process: {error.strerror}") from error
        try:
            said = json.loads(ended.stdout)
        except ValueError:
            said = {"reason": "timed_out" if ended.killed else "crashed"}
        if not (isinstance(said, dict) and said.get("delivered")):
            reason = str(said.get("reason")) if isinstance(said, dict) else "crashed"
            waited = f"it had not answered after {timeout_s:g} s"
            raise self._failed(reason, WORDS.get(reason, waited if ended.killed else reason))

    def _failed(self, reason: str, words: str) -> DeliveryError:
        fixes = {
            "no_apprise": f"{_installing()}, then gpud restart",
            "bad_url": "correct [alerts] apprise_urls in gpud.toml, then gpud restart",
        }
        fix = fixes.get(reason, f"look at the service; gpud alerts test {self.name} tries it again")
        return DeliveryError(
            f"{self.place}: {words}", reason=reason, fix=fix, again=reason != "bad_url"
        )


def place(url: str) -> str:
    """Name the kind of service and nothing else: any other part of an address may be its secret."""
    scheme, separator, _ = url.partition("://")
    return escaped(scheme[:32]) if separator and scheme.isalnum() else "an address"


def _installing() -> str:
    """Return the command that installs Apprise here; an installed environment has no pip."""
    if find_spec("pip") is None:
        return "deploy/install --with apprise"
    return f"{sys.executable} -m pip install --require-hashes -r deploy/requirements-apprise.txt"
