"""/runbooks/: one page for each alert, that says what it means and what to do. Read-only.

The pages are docs/runbooks of the repository, and travel inside the package. Their Markdown is the
little that is used there; whatever else a page held would be shown as it is written.
"""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route

import gpud
from gpud.core.alerts import RUNBOOKS
from gpud.core.markup import Html, el

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

SUFFIX: Final = ".md"
NAME: Final = re.compile(r"[A-Za-z]{1,64}")
"""What can be the name of an alert: no path and no file beside the pages looks like it."""

_INLINE: Final = re.compile(
    r"`(?P<code>[^`]+)`|\*(?P<stress>[^*]+)\*|\[(?P<text>\w+)\]\((?P<to>\w+)\.md\)"
)
_HEADING: Final = re.compile(r"(#{1,2}) (.+)")
_LIST: Final = (f"{RUNBOOKS}/", "runbooks")


def folder() -> Path:
    """Give where the pages are: in the installed package, or in the checkout it runs from."""
    package = Path(gpud.__file__).parent
    installed = package / "runbooks"
    return installed if installed.is_dir() else package.parent / "docs/runbooks"


def routes(style: str, pages: Path | None = None) -> list[Route]:
    """Make the routes: the list, a page, and the page as text where ``.md`` is asked for.

    ``style`` is the address of the style sheet.
    """
    where = folder() if pages is None else pages

    async def index(_: Request) -> Response:
        names = await asyncio.to_thread(_names, where)
        items = "".join(f"<li><a href='{RUNBOOKS}/{name}'>{name}</a>" for name in names)
        return HTMLResponse(_document(style, "Runbooks", f"<h1>Runbooks</h1><ul>{items}</ul>"))

    async def page(request: Request) -> Response:
        asked: str = request.path_params["name"]
        name = asked.removesuffix(SUFFIX)
        text = await asyncio.to_thread(_read, where, name)
        if text is None:
            said = f"there is no runbook {asked!a:.100}; {RUNBOOKS}/ lists them\n"
            return PlainTextResponse(said, status_code=404)
        if asked != name:
            return PlainTextResponse(text)
        return HTMLResponse(_document(style, name, rendered(text)))

    return [
        Route(RUNBOOKS, index),
        Route(f"{RUNBOOKS}/", index),
        Route(f"{RUNBOOKS}/{{name}}", page),
    ]


def rendered(text: str) -> str:
    """Make HTML of a page: headings, lists of one level, paragraphs, code, stress and links."""
    return "".join(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[str]:
    inside = ""  # the list or paragraph that is open
    for line in lines:
        heading, item = _HEADING.fullmatch(line), line.removeprefix("- ")
        wanted = "" if heading or not line else "ul" if item != line or inside == "ul" else "p"
        if wanted != inside:
            yield (f"</{inside}>" if inside else "") + (f"<{wanted}>" if wanted else "")
            inside = wanted
        if heading:
            level = len(heading[1])
            yield f"<h{level}>{_inline(heading[2])}</h{level}>"
        elif line:
            yield f"{'<li>' if item != line else ' '}{_inline(item)}"
    yield f"</{inside}>" if inside else ""


def _inline(text: str) -> str:
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts.append(html.escape(text[end : found.start()]))
        end = found.end()
        if found["code"]:
            parts.append(f"<code>{html.escape(found['code'])}</code>")
        elif found["stress"]:
            parts.append(f"<em>{html.escape(found['stress'])}</em>")
        else:
            parts.append(f"<a href='{RUNBOOKS}/{found['to']}'>{found['text']}</a>")
    return "".join([*parts, html.escape(text[end:])])


def _names(where: Path) -> list[str]:
    return sorted(path.stem for path in where.glob(f"*{SUFFIX}") if NAME.fullmatch(path.stem))


def _read(where: Path, name: str) -> str | None:
    if not NAME.fullmatch(name):
        return None
    try:
        return (where / f"{name}{SUFFIX}").read_text(encoding="utf-8")
    except OSError:
        return None


def _document(style: str, title: str, body: str) -> str:
    """``title`` is one of ours."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} - gpud"),
        el("link", rel="stylesheet", href=style),
    )
    links = [el("a", words, href=to) for to, words in (("/", "the state"), _LIST)]
    top = el("header", el("p", el("strong", "gpud")), el("nav", *links, aria_label="Pages"))
    main = el("main", Html(body), id="main", class_="prose")
    return f"<!DOCTYPE html>\n{el('html', head, el('body', top, main), lang='en')}\n"
