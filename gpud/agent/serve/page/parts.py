"""Pieces that all sections are made of: headings, tables, moments, signs of a state."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from gpud.core.text import rezoned
from gpud.show import standingwords
from gpud.show.markup import LONGEST, Child, Html, el, joined, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpud.show.document import Sample, Stream

LAST_S: Final = 2.0**37
"""A clock may say anything, and the calendar here ends with the year 9999."""
UNKNOWN: Final = "\N{EN DASH}"
SHORT: Final = 18
"""Characters that need not be broken on a phone."""
COMMAND: Final = 28

_PATHS: Final = {
    "ok": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1ZM6.9 11.2 3.8 8.1l1.1-1.1 2 2 4.2-4.2 1.1 1.1Z",
    "degraded": "M8 1 .6 14.4h14.8ZM7.2 6h1.6v4H7.2Zm0 5.2h1.6v1.6H7.2Z",
    "failed": "M5 1h6l4 4v6l-4 4H5l-4-4V5Zm.9 3.8L4.8 5.9 6.9 8l-2.1 2.1 1.1 1.1L8 9.1l2.1 2.1 "
    "1.1-1.1L9.1 8l2.1-2.1-1.1-1.1L8 6.9Z",
    "starting": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 1.6a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 "
    "2.6ZM7.2 4.5h1.6v3.2l2.2 2.2-1.1 1.1-2.7-2.7Z",
}
"""Four shapes that differ also without colour: disc, triangle, octagon, clock. 16 units square."""


@cache
def icon(state: str) -> Html:
    """Draw the sign of a state; it stands beside its word and says nothing by itself."""
    path = el("path", d=_PATHS[state], fill="currentColor", fill_rule="evenodd")
    return el("svg", path, class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def mark(state: str, words: str) -> Html:
    """Give a word in the colour of its state, with its sign; few words stay on one line."""
    short = " short" * (len(words) <= SHORT)
    return el("span", icon(state), el("span", words), class_=f"mark {state}{short}")


def section(
    name: str,
    title: str,
    *body: Child,
    class_: str = "",
    live: bool = True,
    data_first_s: str | None = None,
) -> Html:
    """Give a section, a landmark by its heading; what is ``live`` is replaced when it changes."""
    shown = joined(*body)
    if not shown:
        return Html("")
    head = el("h2", title, id=f"{name}-title")
    inside = el("div", shown, id=f"{name}-body", data_live=True) if live else shown
    return el(
        "section",
        head,
        inside,
        id=name,
        class_=class_ or None,
        data_first_s=data_first_s,
        aria_labelledby=f"{name}-title",
    )


def table(  # noqa: PLR0913  # what a table has
    name: str,
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    figures: Iterable[int] = (),
    hidden_caption: bool = False,
) -> Html:
    """Draw a table whose first column names the row; nothing where there is no row.

    ``figures`` are the columns of numbers. It scrolls inside a box of its own, by keyboard too.
    """
    right = set(figures)
    kinds = ["n" if place in right else None for place in range(len(headings))]
    # Nine tenths of a page are cells: what is the same in all of them is written once.
    marks = [' class="n"' if kind else "" for kind in kinds]
    ends = [(f"<td{marked}>", "</td>") for marked in marks]
    ends[0] = (f'<th scope="row"{marks[0]}>', "</th>")
    body = Html("".join([_row(ends, row) for row in rows]))
    if not body:
        return Html("")
    heads = [
        el("th", words, scope="col", class_=kind)
        for words, kind in zip(headings, kinds, strict=True)
    ]
    said = el("caption", caption, id=f"{name}-caption", class_="hidden" if hidden_caption else None)
    drawn = el("table", said, el("thead", el("tr", *heads)), el("tbody", body))
    return el(
        "div", drawn, class_="scroll", tabindex=0, role="region", aria_labelledby=f"{name}-caption"
    )


def _row(ends: Sequence[tuple[str, str]], row: Sequence[Child]) -> str:
    cells = [
        f"{opens}{cell if type(cell) is Html else joined(cell)}{closes}"
        for (opens, closes), cell in zip(ends, row, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def sentence(words: str, most: int = LONGEST) -> Html:
    """Escape a text of the agent's; its moments are written as those beside it are."""
    return Html(rezoned(text(words, most), lambda at_s: moment(at_s, "at")))


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Draw names and values side by side."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs))


def chart(name: str, title: Child, latest: Child, kind: str | None, **data: str | None) -> Html:
    """Draw a figure whose chart a script puts into ``.plot``; ``kind`` None: there is none.

    ``latest`` says in words and tables what the chart shows, and is replaced when it changes.
    """
    return el(
        "figure",
        el("figcaption", title, id=f"{name}-title"),
        el("div", class_="plot") if kind else None,
        el("div", latest, id=f"{name}-latest", data_live=True),
        class_="chart",
        id=name,
        data_chart=kind,
        **data,
        aria_labelledby=f"{name}-title",
    )


def slug(words: str) -> str:
    """Write words as a part of an id: "GPU 0" is "gpu0"."""
    return words.replace(" ", "").lower()


def details(name: str, summary: Child, *body: Child, opened: bool = False) -> Html:
    """Put what is long behind a line that opens it."""
    return el("details", el("summary", summary), *body, id=name, open=opened)


def moment(at_s: float, form: Literal["ago", "at"] = "ago") -> Html:
    """Write a moment in UTC; scripts rewrite it to the browser's zone, ``ago`` to an age.

    The words do not depend on now: a page on which nothing has changed is the same page.
    """
    then = datetime.fromtimestamp(min(max(at_s, 0.0), LAST_S), UTC)
    iso = then.isoformat()[: len("2026-01-01T00:00:00")]
    words = f"{iso[:10]} {iso[11:16]} UTC"
    return Html(f'<time datetime="{iso}Z" data-moment="{form}">{words}</time>')


_COMMAND: Final = re.compile(r"(sudo |from Windows: )?(docker|gpud|wsl|nvidia-smi) [^;,()]{1,80}")
"""A fix that is nothing but a command."""


def advice(words: str) -> Html:
    """Write what to do; what stands between backticks there is to be typed."""
    if "`" not in words and _COMMAND.fullmatch(words):
        before, _, typed = words.rpartition(": ")
        return joined(f"{before}: " if before else None, code(typed))
    parts = re.split(r"`([^`]+)`", words[:2000])
    return joined([code(part) if place % 2 else part for place, part in enumerate(parts)])


def todo(fix: str | None) -> Html | None:
    """Give the line that says what to do, where anything can be done."""
    return el("p", el("strong", "To do: "), advice(fix)) if fix else None


def code(words: str) -> Html:
    """Give a command or a path; a short one stays on one line."""
    return el("code", words, class_="short" if len(words) <= COMMAND else None)


def link(to: str, words: Child) -> Html:
    """Give a link; ``to`` is an address of ours."""
    return el("a", words, href=to)


def figure_name(words: str, name: str) -> Html | str:
    """Name a figure as people do and, where that is another word, as commands and metrics do."""
    return words if words == name else joined(words, " ", el("span", name, class_="name"))


def figure(sample: Sample) -> Html | str:
    """Write a sample's figure; each of two humps on a line of its own."""
    first, *others = sample.humps
    if not others:
        return first
    return joined(first, *(joined(" ", el("span", f"/ {one}", class_="hump")) for one in others))


def verdict(stream: Stream | None, sample: Sample) -> Html:
    """Say in words how a figure stands to what is usual.

    A verdict is of many runs. Where ``sample``, the one that is shown beside it, comes to something
    else, that is said too.
    """
    said = standingwords.standing(stream)
    usual = AS_USUAL if said.whole == standingwords.AS_USUAL else text(said.whole)
    shown = mark("failed", said.whole) if said.fires else usual
    last = standingwords.latest_change(stream, sample.value)
    if not last:
        return shown
    at_s = said.at_s
    when = joined("judged ", moment(at_s, "at")) if at_s is not None else "over the latest runs"
    return joined(shown, " ", el("span", when, f"; the last run is {last}", class_="aside"))


AS_USUAL: Final = mark("ok", standingwords.AS_USUAL)
