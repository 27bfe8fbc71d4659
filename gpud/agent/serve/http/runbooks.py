"""/runbooks/: one page for each alert, with its meaning and what to do. Read-only.

The pages are docs/runbooks of the repository, and travel inside the package.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route

import gpud
from gpud.agent.serve.markup import Html, el
from gpud.core.alerts import RUNBOOKS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

SUFFIX: Final = ".md"
NAME: Final = re.compile(r"[A-Za-z]{1,64}")
"""The name of an alert: no path, and no file beside the pages, looks like it."""


def folder() -> Path:
    """Return where the pages are: in the installed package, or in the checkout it runs from."""
    package = Path(gpud.__file__).parent
    installed = package / "runbooks"
    return installed if installed.is_dir() else package.parent / "docs/runbooks"


def routes(where: Path | None = None) -> list[Route]:
    """Make the routes: the list, and a page. The files are read once, now."""
    pages = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted((where or folder()).glob(f"*{SUFFIX}"))
        if NAME.fullmatch(path.stem)
    }

    async def index(_: Request) -> Response:
        items = [el("li", el("a", name, href=f"{RUNBOOKS}/{name}")) for name in pages]
        return _page("Runbooks", el("h1", "Runbooks"), el("ul", *items))

    async def page(request: Request) -> Response:
        name: str = request.path_params["name"]
        if name not in pages:
            message = f"there is no runbook {name!a:.100}; {RUNBOOKS}/ lists them\n"
            return PlainTextResponse(message, status_code=404)
        return _page(name, await asyncio.to_thread(rendered, pages[name]))

    return [
        Route(RUNBOOKS, index),
        Route(f"{RUNBOOKS}/", index),
        Route(f"{RUNBOOKS}/{{name}}", page),
    ]


def rendered(text: str) -> Html:
    """Render Markdown; raw HTML in it is shown as text, and links to other pages lead there."""
    from markdown_it import MarkdownIt  # with the first page: most agents never need it

    markdown = MarkdownIt("commonmark", {"html": False}).disable("image")
    tokens = markdown.parse(text)
    for token in (child for block in tokens for child in block.children or ()):
        if token.type == "link_open":
            name = str(token.attrs["href"]).removesuffix(SUFFIX)
            if NAME.fullmatch(name):
                token.attrs["href"] = f"{RUNBOOKS}/{name}"
    return Html(markdown.renderer.render(tokens, markdown.options, {}))


def _page(title: str, *content: Html) -> HTMLResponse:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} - gpud"),
        el("link", rel="stylesheet", href="/static/page.css"),
    )
    links = el("a", "the state", href="/"), el("a", "runbooks", href=f"{RUNBOOKS}/")
    top = el("header", el("p", el("strong", "gpud")), el("nav", *links, aria_label="Pages"))
    main = el("main", *content, id="main", class_="prose")
    return HTMLResponse(f"<!DOCTYPE html>\n{el('html', head, el('body', top, main), lang='en')}\n")
