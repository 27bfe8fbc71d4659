"""What a page takes on the wire, as the browser counts it, headers included."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page


class Wire:
    """Bytes received of ``page``, by the first part of the path."""

    def __init__(self, page: Page) -> None:
        self._paths = dict[str, str]()
        self.by_path = defaultdict[str, int](int)
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", self._asked)
        session.on("Network.loadingFinished", self._ended)

    def _asked(self, event: dict[str, dict[str, str]]) -> None:
        self._paths[str(event["requestId"])] = urlsplit(event["request"]["url"]).path

    def _ended(self, event: dict[str, float]) -> None:
        # encodedDataLength of this event is the whole answer: head and compressed body.
        path = self._paths.get(str(event["requestId"]), "?")
        self.by_path[path] += int(event["encodedDataLength"])

    @property
    def total(self) -> int:
        return sum(self.by_path.values())
