"""Writer of text: sections and blocks as lines of styled words, for `gpud status` and others."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gpud.core.stats import median
from gpud.show import model
from gpud.show.view import BAD, BARS, HEAD, PLAIN, QUIET, UNSURE, Span, View, line
from gpud.units import clock, moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpud.show.view import Line

LONGEST: Final = 2000
"""Characters of one text: a driver may say a megabyte."""
STYLES: Final = {"ok": PLAIN, "degraded": UNSURE, "failed": BAD, "starting": PLAIN}
AROUND: Final = {"name": " ({})", "aside": "; {}", "hump": " {}"}
INDENT: Final = "  "
LEAST_NAME: Final = 20
PAIR: Final = 2
"""Columns that need no headings."""
LEAST_BARS, MOST_BARS = 8, 60
PIPED_BARS: Final = 20
GAP: Final = " "
GAP_FROM: Final = 3.0
"""Times the usual distance of two points: from there on there is a hole between them."""
LEAST_SPAN: Final = 0.1
"""Of the median: noise of one percent is no mountain."""


def plain(words: model.Text, *, short: bool = False) -> str:
    """Write a text without its marks; ``short``: for a narrow terminal."""
    if words is None or isinstance(words, str):
        return (words or "")[:LONGEST]
    if isinstance(words, model.Inline):
        return _inline(words, short=short)
    return "".join(plain(part, short=short) for part in words)


def _inline(words: model.Inline, *, short: bool) -> str:
    match words:
        case model.Timestamp():
            return clock(words.at_s) if words.near else moment(words.at_s)
        case model.Link():
            elsewhere = words.words != words.to and not words.to.startswith("#")
            return f"{words.words}: {words.at}{words.to}" if elsewhere else words.words
        case model.Short():
            return words.short if short else plain(words.whole)
        case model.Styled():
            return AROUND.get(words.kind, "{}").format(plain(words.words, short=short))
        case model.Mark() | model.Advice() | model.Prose():
            return plain(words.words)
    raise TypeError(words)


def style(words: model.Text) -> str:
    """Return the style of the first mark in a text."""
    if isinstance(words, model.Mark):
        return STYLES[words.state]
    if isinstance(words, model.Short):
        return style(words.whole)
    if words is None or isinstance(words, str | model.Inline):
        return PLAIN
    return next(filter(None, map(style, words)), PLAIN)


def section_lines(section: model.Section, view: View) -> list[Line]:
    """Write a section; its first line stands behind its title if it is no table and no card.

    A table whose first heading is the title needs no line above it.
    """
    body = lines(section.blocks, view)
    if not body:
        return []
    shown = (b for b in section.blocks if not isinstance(b, model.Detail | model.Fold))
    first = next(shown, None)
    if len(body) == 1 or isinstance(first, model.Paragraph | model.Pairs):
        return [line(Span(f"{section.title}: ", HEAD), *_stripped(body[0])), *body[1:]]
    if isinstance(first, model.Table) and first.columns[0].heading == section.title:
        return body
    return [line(Span(section.title, HEAD)), *body]


def lines(blocks: Iterable[model.Block], view: View) -> list[Line]:
    """Write blocks below each other."""
    return [each for block in blocks for each in _block(block, view)]


def _block(block: model.Block, view: View) -> list[Line]:
    match block:
        case model.Paragraph() | model.Pairs():
            return _sentence(block, view)
        case model.Table():
            return _table(block, view)
        case model.Card():
            title = line(Span(f"{INDENT}{plain(block.title)}", HEAD))
            inside = lines(block.blocks, view)
            return [title, *((Span(INDENT), *each) for each in inside)]
    return _inside(block, view)


def _inside(block: model.Block, view: View) -> list[Line]:
    """Write what has blocks of its own and is drawn by them alone."""
    head = ""
    blocks: Sequence[model.Block] = ()
    match block:
        case model.Group():
            head, blocks = block.heading or "", block.blocks
        case model.Detail() if view.details:
            blocks = block.blocks
        case model.Fold() if block.whole:
            head, blocks = block.summary, block.blocks
    title = [line(Span(f"{INDENT}{head}", HEAD))] if head else []
    return [*title, *lines(blocks, view)]


def _sentence(block: model.Paragraph | model.Pairs, view: View) -> list[Line]:
    if isinstance(block, model.Paragraph):
        words = plain(block.words) if block.kind != "inline" else _listed(block.words)
        quiet = QUIET if block.kind == "quiet" else style(block.words)
        parts = words.splitlines() if view.details and block.kind == "lines" else [words]
        return [line(Span(f"{INDENT}{part}", quiet)) for part in parts]
    pairs = [(pair, plain(pair.value)) for pair in block.pairs]
    words = ", ".join(f"{pair.name} {value}" for pair, value in pairs if value)
    mark = next(filter(None, (style(pair.value) for pair, _ in pairs)), PLAIN)
    return [line(Span(f"{INDENT}{words}", mark))] if words else []


def _listed(words: model.Text) -> str:
    parts = words if isinstance(words, list | tuple) else [words]
    return ", ".join(plain(part) for part in parts)


def _stripped(drawn: Line) -> Line:
    first, *others = drawn
    return (Span(first.text.removeprefix(INDENT), first.style), *others)


def _table(table: model.Table, view: View) -> list[Line]:
    most = min(table.terminal, table.limit)
    rows, more = table.rows[:most], len(table.rows) - most
    if not rows:
        return []
    shown = list(_stacked(table, rows)) if table.stacked else _columns(table, rows, view)
    if more > 0:
        words = f"{INDENT}and {more} more{f': {plain(table.more)}' if table.more else ''}"
        shown.append(line(Span(words, QUIET)))
    return shown


def _stacked(table: model.Table, rows: Sequence[Sequence[model.Text]]) -> Iterator[Line]:
    """Write a row's name and first cell, and each other cell below them behind its heading."""
    for name, first, *others in rows:
        yield line(f"{INDENT}{plain(name)}: ", Span(plain(first), style(first)))
        for column, cell in zip(table.columns[2:], others, strict=True):
            if column.place != "page" and (words := plain(cell)):
                yield line(f"{INDENT}{INDENT}{column.heading}: {words}")


def _columns(
    table: model.Table,
    rows: Sequence[Sequence[model.Text]],
    view: View,
) -> list[Line]:
    """Share the width out: if it is short cells become so, wide columns go, and names are cut."""
    places = [n for n, column in enumerate(table.columns) if column.place != "page"]
    narrow = [n for n in places if table.columns[n].place != "wide"]
    for columns, short in ((places, False), (places, True), (narrow, True), (narrow[:3], True)):
        heads = [table.columns[n].heading for n in columns]
        cells = [[plain(row[n], short=short) for n in columns] for row in rows]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        room = view.width - sum(widths) - len(INDENT) * len(widths)
        if view.height is None or room >= 0:
            break
    widths[0] -= max(0, min(-room, widths[0] - LEAST_NAME)) if view.height is not None else 0
    shown = [line(Span(_row(heads, widths, table, columns), QUIET))] if len(heads) > PAIR else []
    for number, (row, texts) in enumerate(zip(rows, cells, strict=True)):
        texts[0] = f"{texts[0][: widths[0] - 1]}…" if len(texts[0]) > widths[0] else texts[0]
        mark = next(filter(None, (style(row[n]) for n in columns)), PLAIN)
        bars = _bars(table.past[number], view, room) if table.past else ""
        written = _row(texts, widths, table, columns)
        shown.append(line(Span(f"{written}{INDENT}{bars}" if bars else written, mark)))
    return shown


def _row(
    texts: Sequence[str], widths: Sequence[int], table: model.Table, places: Sequence[int]
) -> str:
    aligned = (
        text.rjust(width) if table.columns[n].number else text.ljust(width)
        for text, width, n in zip(texts, widths, places, strict=True)
    )
    return f"{INDENT}{INDENT.join(aligned)}".rstrip()


def _bars(past: model.RecentValues, view: View, room: int) -> str:
    width = PIPED_BARS if view.height is None else min(room - len(INDENT), MOST_BARS)
    if width < LEAST_BARS:
        return ""
    return sparkline(past.at_s, past.values, width=width)


def sparkline(
    at_s: Sequence[float], values: Sequence[float], *, width: int, most: float | None = None
) -> str:
    """Draw the newest points that ``width`` characters hold, the newest at the right end.

    Shapes: both float[n], in the order of time. A time without points is one blank, however long.
    The lowest bar is the least that is shown, the highest the most, and at least 10 % apart; with
    ``most`` the lowest is 0 and the highest that.
    """
    points = list(zip(at_s, values, strict=True))
    if not points or width < 1:
        return ""
    steps = [after - before for (before, _), (after, _) in pairwise(points)]
    gap_s = GAP_FROM * median(steps) if steps else math.inf
    cells: list[float | None] = []
    for index, (_, value) in enumerate(points):
        if index and steps[index - 1] > gap_s > 0:
            cells.append(None)
        cells.append(value)
    cells = cells[-width:]
    shown = [value for value in cells if value is not None]
    low, high = (min(shown), max(shown)) if most is None else (0.0, most)
    least = 0.0 if most is not None else LEAST_SPAN * abs(median(shown))
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
    bars = (GAP if value is None else _bar(value, low, high) for value in cells)
    return "".join(bars).strip()


def _bar(value: float, low: float, high: float) -> str:
    height = int(len(BARS) * (value - low) / (high - low)) if high > low else 0
    return BARS[max(0, min(len(BARS) - 1, height))]
