"""A browser that hears everything: consoles, refused policies, and whatever leaves our origin."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import structs

from gpud.core.clock import Instant
from gpud.core.sections import PathSettings
from gpud.core.settings import parse
from tests import snapshots
from tests.agent.serve.http.armed import web
from tests.e2e.program import free_port
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from gpud.agent.state.snapshot import Snapshot


AXE: Final = files("axe_playwright_python") / "axe.min.js"
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
REFUSED: Final = """addEventListener("securitypolicyviolation", (event) =>
  console.error("policy", event.violatedDirective, event.blockedURI, event.sourceFile))"""
SETTLED: Final = """() => [...document.querySelectorAll("[data-chart]")].every((one) => {
  const { top, bottom } = one.getBoundingClientRect();
  const isSeen = one.checkVisibility() && top <= innerHeight && bottom >= 0;
  return !isSeen || one.hasAttribute("data-drawn");
})"""

NOTICED: Final = "(one) => one.matches('[data-drawn], [aria-busy]')"


@dataclass
class Watched:
    """One page in a context of its own, and what was heard of it."""

    page: Page
    said: list[str] = field(default_factory=list)
    abroad: list[str] = field(default_factory=list)

    def well(self) -> None:
        """Nothing was complained of and nobody else was asked."""
        assert self.said == []
        assert self.abroad == []

    def drawn(self) -> None:
        """Wait until every chart in sight has its figures."""
        self.page.wait_for_function(SETTLED)

    def scroll(self) -> None:
        """Bring every chart into sight once, and go back to the top."""
        for figure in self.page.query_selector_all("[data-chart]"):
            if not figure.is_visible():  # it is folded
                continue
            figure.scroll_into_view_if_needed()
            # On a busy machine a chart is gone again before the browser has noticed it.
            self.page.wait_for_function(NOTICED, arg=figure)
        self.page.wait_for_function(
            """() => [...document.querySelectorAll("[data-chart]")]
            .every((one) => !one.checkVisibility() || one.hasAttribute("data-drawn"))"""
        )
        self.page.evaluate("scrollTo({top: 0, behavior: 'instant'})")

    def chart(self, figure: str, what: str) -> Any:
        """Evaluate ``what`` about the chart ``u`` of a figure."""
        return self.page.evaluate(f"(id) => ((u) => {what})(gpud.drawn()[id])", figure)

    def written(self, figure: str) -> list[str]:
        """What is written into a chart when it is drawn again."""
        texts: list[str] = self.chart(
            figure,
            """{ const texts = [], own = u.ctx.fillText;
            u.ctx.fillText = (text, ...at) => (texts.push(text), own.call(u.ctx, text, ...at));
            u.redraw(false, false);
            return new Promise((go) =>
              setTimeout(() => (delete u.ctx.fillText, go(texts)), 200)); }""",
        )
        return texts

    def violations(self) -> list[str]:
        """What axe-core objects to, of WCAG A and AA."""
        # Evaluated from outside: the policy of the page lets nobody put a script into it.
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate(
            "(tags) => axe.run(document, {runOnly: {type: 'tag', values: tags}})", TAGS
        )
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return wide


@contextlib.contextmanager
def watched(
    browser: Browser, origin: str, at_s: float | None = None, **context: Any
) -> Iterator[Watched]:
    """Open a context that reaches ``origin`` only; ``at_s`` is what its clock says."""
    context.setdefault("timezone_id", "Europe/Berlin")
    context.setdefault("locale", "en-US")
    made = browser.new_context(**context)
    made.set_default_timeout(LIMIT_S * 1000)
    page = made.new_page()
    heard = Watched(page)
    host = urlsplit(origin).netloc

    def route(asked: Route) -> None:
        if urlsplit(asked.request.url).netloc == host:
            asked.continue_()
            return
        heard.abroad.append(asked.request.url)
        asked.abort()

    made.route(lambda url: not url.startswith(("data:", "blob:")), route)
    made.add_init_script(REFUSED)
    if at_s is not None:
        page.clock.set_fixed_time(at_s)
    page.on("console", lambda one: _heard(heard, one.type, one.text))
    page.on("pageerror", lambda error: heard.said.append(f"error: {error}"))
    try:
        yield heard
    finally:
        made.close()


def _heard(watched: Watched, kind: str, text: str) -> None:
    if kind in {"error", "warning", "assert"}:
        watched.said.append(f"{kind}: {text}")


def bytes_by_path(page: Page) -> dict[str, int]:
    """Count what the page receives from now on, headers included, by path."""
    paths, received = dict[str, str](), defaultdict[str, int](int)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")

    def asked(event: dict[str, Any]) -> None:
        paths[event["requestId"]] = urlsplit(event["request"]["url"]).path

    def ended(event: dict[str, Any]) -> None:
        # encodedDataLength of this event is the whole answer: head and compressed body.
        received[paths.get(event["requestId"], "?")] += int(event["encodedDataLength"])

    session.on("Network.requestWillBeSent", asked)
    session.on("Network.loadingFinished", ended)
    return received


@dataclass
class Site:
    """What is served: exchange ``snapshot`` and the next answer tells of the new one."""

    snapshot: Snapshot
    folder: Path
    now: Instant = snapshots.NOW
    port: int = field(default_factory=free_port)
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def change(self, snapshot: Snapshot) -> None:
        """Serve another snapshot, five seconds later: a rendering serves everybody for one."""
        self.snapshot = snapshot
        self.now = Instant(self.now.wall_s + 5, self.now.mono_s + 5)

    def start(self) -> None:
        """Listen, each time on the same port."""
        settings = structs.replace(parse(None, {}), paths=PathSettings(state=str(self.folder)))
        serving = web(settings, lambda: self.snapshot, lambda: self.now, port=self.port)
        self._running.enter_context(serving)

    def stop(self) -> None:
        """Answer nobody any more."""
        self._running.close()


@contextlib.contextmanager
def site(snapshot: Snapshot, folder: Path) -> Iterator[Site]:
    """Serve, and stop at the end."""
    made = Site(snapshot, folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()
