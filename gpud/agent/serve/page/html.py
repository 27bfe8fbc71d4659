"""Writer of HTML: sections and blocks as markup, which scripts may keep up to date."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from gpud.agent.serve.markup import LONGEST, Child, Html, el, joined, text
from gpud.core.text import rezoned
from gpud.show import model
from gpud.units import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


SHORT_WORDS, SHORT_COMMAND = 18, 28
"""Characters that need not be broken on a phone."""
_PATHS: Final = {
    "ok": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1ZM6.9 11.2 3.8 8.1l1.1-1.1 2 2 4.2-4.2 1.1 1.1Z",
    "degraded": "M8 1 .6 14.4h14.8ZM7.2 6h1.6v4H7.2Zm0 5.2h1.6v1.6H7.2Z",
    "failed": "M5 1h6l4 4v6l-4 4H5l-4-4V5Zm.9 3.8L4.8 5.9 6.9 8l-2.1 2.1 1.1 1.1L8 9.1l2.1 2.1 "
    "1.1-1.1L9.1 8l2.1-2.1-1.1-1.1L8 6.9Z",
    "starting": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 1.6a5.4 5.4 0 1 1 0 10.8A5.4 5.4 0 0 1 8 "
    "2.6ZM7.2 4.5h1.6v3.2l2.2 2.2-1.1 1.1-2.7-2.7Z",
}
"""Four shapes that differ also without colour: disc, triangle, octagon, clock. 16 units square."""
_COMMAND: Final = re.compile(r"(sudo |from Windows: )?(docker|gpud|wsl|nvidia-smi) [^;,()]{1,80}")
"""A fix that is nothing but a command."""
COPY: Final = el("button", "copy", type="button", class_="copy", aria_label="copy the command")
"""It works where scripts run, and is not shown elsewhere."""


@cache
def icon(state: str) -> Html:
    """Draw the sign of a state; it stands beside its word and says nothing by itself."""
    path = el("path", d=_PATHS[state], fill="currentColor", fill_rule="evenodd")
    return el("svg", path, class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def inline(words: model.Text) -> Html:
    """Write a text. It takes most of the time of a page."""
    if isinstance(words, str):
        return text(words)
    if words is None:
        return Html("")
    if isinstance(words, model.Inline):
        return INLINE[type(words)](words)
    return Html("".join(map(inline, words)))


def _mark(words: model.Mark) -> Html:
    short = " short" * (len(words.words) <= SHORT_WORDS)
    class_ = f"mark {words.state}{short}"
    return el("span", icon(words.state), el("span", words.words), class_=class_)


def _styled(words: model.Styled) -> Html:
    inner = inline(words.words)
    if words.kind == "code":
        typed = el("code", inner, class_="short" if len(inner) <= SHORT_COMMAND else None)
        is_command = _COMMAND.fullmatch(str(words.words))
        return el("span", typed, COPY, class_="typed") if is_command else typed
    if words.kind == "strong":
        return el("strong", inner)
    return joined(" ", el("span", inner, class_=words.kind))


def moment(at_s: float, *, ago: bool = False, near: bool = False) -> Html:
    """Write a moment in UTC; scripts rewrite it to the browser's zone, ``ago`` to an age.

    A ``near`` one is written to the second and without its day.

    The words do not depend on now: a page on which nothing has changed is the same page.
    """
    iso = utc(at_s, "%Y-%m-%dT%H:%M:%S")
    words = f"{iso[11:]} UTC" if near else utc(at_s)
    form = "ago" if ago else "clock" if near else "at"
    return Html(f'<time datetime="{iso}Z" data-moment="{form}">{words}</time>')


def advice(words: str) -> Html:
    """Write what to do; what stands between backticks there is to be typed."""
    if "`" not in words and _COMMAND.fullmatch(words):
        before, _, typed = words.rpartition(": ")
        return joined(f"{before}: " if before else None, inline(model.Styled(typed, "code")))
    parts = re.split(r"`([^`]+)`", words[:LONGEST])
    typed_or_plain = (
        inline(model.Styled(p, "code")) if n % 2 else text(p) for n, p in enumerate(parts)
    )
    return joined(*typed_or_plain)


def section(section: model.Section, *above: Child) -> Html:
    """Write a section, a landmark by its heading; ``above`` stands below the heading."""
    return el(
        "section",
        el("h2", section.title, id=f"{section.name}-title"),
        *above,
        blocks(section.blocks),
        id=section.name,
        class_="wide" if section.wide else None,
        data_first_s=None if section.first_s is None else f"{section.first_s:.0f}",
        aria_labelledby=f"{section.name}-title",
    )


def blocks(blocks: Iterable[model.Block]) -> Html:
    """Write blocks below each other."""
    return joined(*(BLOCKS[type(block)](block) for block in blocks))


def _group(group: model.Group) -> Html:
    head = el("h3", group.heading) if group.heading else None
    kind = {model.Chart: "charts", model.Card: "cards"}.get(type(group.blocks[0]))
    return joined(head, el("div", blocks(group.blocks), class_=kind))


def _paragraph(block: model.Paragraph) -> Html:
    if block.kind == "inline" and not isinstance(block.words, str | model.Inline | None):
        parts = (el("span", inline(part)) for part in block.words)
        return el("p", *parts, class_="inline quiet")
    return el("p", inline(block.words), class_=block.kind or None)


def _pairs(pairs: Sequence[model.Pair]) -> Html:
    """Write names and values side by side, shares of a whole as bars above them."""
    meters = [_meter(pair.name, pair.value, pair.share) for pair in pairs if pair.share is not None]
    rows = [
        el(
            "div",
            el("dt", pair.name),
            el("dd", model.UNKNOWN if pair.value is None else inline(pair.value)),
        )
        for pair in pairs
        if pair.share is None
    ]
    return joined(
        el("div", *meters, class_="meters") if meters else None, el("dl", *rows) if rows else None
    )


def _meter(name: str, value: model.Text, share: float) -> Html:
    words = inline(value)
    shown = f"{min(max(share, 0.0), 1.0):.4g}"
    bar = el("meter", words, value=shown, max="1", aria_label=Html(f"{text(name)}: {words}"))
    return el("div", el("span", name, class_="quiet"), " ", el("span", words), bar, class_="meter")


def _table(table: model.Table) -> Html:
    """Write a table whose first column names the row; nothing where there is no row.

    It scrolls inside a box of its own, by keyboard too.
    """
    if not table.rows:
        return Html("")
    marks = [' class="n"' if column.number else "" for column in table.columns]
    ends = [(f"<td{mark}>", "</td>") for mark in marks]
    ends[0] = (f'<th scope="row"{marks[0]}>', "</th>")
    past: Sequence[model.RecentValues | None] = table.past or [None] * len(table.rows)
    rows = Html("".join(map(partial(_row, ends), table.rows[: table.limit], past)))
    heads = [
        el("th", column.heading, scope="col", class_="n" if column.number else None)
        for column in table.columns
    ]
    if table.past:
        heads.insert(-1, el("th", "past", scope="col", class_="past"))
    label = f"{table.name}-caption"
    caption = el("caption", table.caption, id=label, class_="hidden")
    drawn = el(
        "table",
        caption,
        el("thead", el("tr", *heads)),
        el("tbody", rows),
        id=table.name if table.past else None,
        data_chart="past" if table.past else None,
    )
    more = len(table.rows) - table.limit
    shows = (": ", inline(table.more)) if table.more else None
    return joined(
        el("div", drawn, class_="scroll", tabindex=0, role="region", aria_labelledby=label),
        el("p", f"and {more} more", shows, class_="quiet") if more > 0 else None,
    )


def _row(
    ends: Sequence[tuple[str, str]], row: Sequence[model.Text], past: model.RecentValues | None
) -> str:
    cells = [
        f"{opens}{inline(cell)}{closes}" for (opens, closes), cell in zip(ends, row, strict=True)
    ]
    if past is not None:
        cells.insert(-1, el("td", class_="past", **_data(past.series)))
    return f"<tr>{''.join(cells)}</tr>"


def _card(card: model.Card) -> Html:
    return el(
        "article",
        el("h3", inline(card.title), id=card.name or None),
        blocks(card.blocks),
        class_=f"card {card.state}" if card.state else "card",
        aria_labelledby=card.name or None,
    )


def _chart(chart: model.Chart) -> Html:
    """Write a figure whose chart a script puts into ``.plot``."""
    return el(
        "figure",
        el("figcaption", inline(chart.title), id=f"{chart.name}-title"),
        el("div", class_="plot"),
        blocks(chart.blocks),
        class_="chart",
        id=chart.name,
        data_chart=chart.kind,
        **_data(chart.data),
        aria_labelledby=f"{chart.name}-title",
    )


def _data(values: Mapping[str, str]) -> dict[str, str]:
    return {f"data_{name}": value for name, value in values.items()}


def fold(name: str, summary: Child, inside: Iterable[model.Block], *, opened: bool = False) -> Html:
    """Write what a click opens."""
    return el("details", el("summary", summary), blocks(inside), id=name, open=opened)


INLINE: Final[dict[type, Callable[[Any], Html]]] = {
    model.Mark: _mark,
    model.Short: lambda words: inline(words.whole),
    model.Timestamp: lambda words: moment(words.at_s, ago=words.ago, near=words.near),
    model.Prose: lambda words: Html(rezoned(text(words.words), moment)),
    model.Advice: lambda words: advice(words.words),
    model.Link: lambda words: el("a", words.words, href=words.to),
    model.Styled: _styled,
}
BLOCKS: Final[dict[type, Callable[[Any], Html]]] = {
    model.Paragraph: _paragraph,
    model.Pairs: lambda block: _pairs(block.pairs),
    model.Table: _table,
    model.Card: _card,
    model.Chart: _chart,
    model.Group: _group,
    model.Detail: lambda block: blocks(block.blocks),
    model.Fold: lambda block: fold(block.name, block.summary, block.blocks, opened=block.opened),
}
