"""Model of what page and terminal show: sections of blocks of text, made once and written twice.

`gpud.agent.serve.page.html` writes it as HTML, `gpud.show.text` as lines. Words in it may quote
foreign strings of any length: both writers escape and cut them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from gpud.units import HOUR_S, place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpud.document.runs import LastRun
    from gpud.document.status import Status

UNKNOWN: Final = "\N{EN DASH}"
State: TypeAlias = Literal["ok", "degraded", "failed", "starting"]


class Inline(msgspec.Struct, frozen=True):
    """A piece of text that is more than words."""


Text: TypeAlias = "str | Inline | Sequence[Text] | None"


class Timestamp(Inline, frozen=True):
    """A moment in Unix time; a script may write an ``ago`` one as an age.

    A ``near`` one is written to the second and without its day.
    """

    at_s: float
    ago: bool = False
    near: bool = False


class Mark(Inline, frozen=True):
    """Words in the colour of a state."""

    state: State
    words: str


class Styled(Inline, frozen=True):
    """Words of a kind: "name" is that of commands, "aside" and "hump" qualify what is before."""

    words: Text
    kind: Literal["code", "strong", "name", "aside", "hump"]


class Link(Inline, frozen=True):
    """A link to a path of gpud's own server, which answers ``at`` an address."""

    to: str
    words: str
    at: str = ""


class Prose(Inline, frozen=True):
    """A text of the agent's. Moments in it are in UTC; writers put them into the reader's zone."""

    words: str


class Advice(Inline, frozen=True):
    """What to do; a command in it stands between backticks or is all of it."""

    words: str


class Short(Inline, frozen=True):
    """A text, and its short form for a narrow terminal."""

    whole: Text
    short: str


class Block(msgspec.Struct, frozen=True):
    """A part of a section."""


class Paragraph(Block, frozen=True):
    """A line. ``kind``: "quiet", "lines" (keeps line feeds), "inline" (parts side by side)."""

    words: Text
    kind: str = ""


class Pair(msgspec.Struct, frozen=True):
    """A name and its value; None: not known. A ``share`` of the whole may be drawn as a bar."""

    name: str
    value: Text
    share: float | None = None


class Pairs(Block, frozen=True):
    """Names and values side by side."""

    pairs: Sequence[Pair]


class Heading(msgspec.Struct, frozen=True):
    """``place``: "page" is not for a terminal, and a narrow one drops what is "wide"."""

    heading: str
    number: bool = False
    place: Literal["", "wide", "page"] = ""


def headings(
    *words: str, numbers: Collection[str] = (), wide: Collection[str] = ()
) -> tuple[Heading, ...]:
    """Make columns, those of numbers and those that a narrow terminal drops by their headings."""
    return tuple(
        Heading(heading, heading in numbers, "wide" if heading in wide else "") for heading in words
    )


class RecentValues(msgspec.Struct, frozen=True):
    """A series as a line of small bars. ``series`` names it for a script that knows more of it."""

    series: Mapping[str, str]
    at_s: Sequence[float] = ()
    values: Sequence[float] = ()


class Table(Block, frozen=True):
    """Rows of cells, the first of which names its row, and the ``past`` of each.

    Beyond ``limit`` rows, or ``terminal`` ones in a terminal, they are counted, and ``more`` says
    what shows them. ``stacked``: a terminal writes cells below each other.
    """

    name: str
    caption: str
    columns: Sequence[Heading]
    rows: Sequence[Sequence[Text]]
    past: Sequence[RecentValues] = ()
    limit: int = 60
    terminal: int = 60
    more: Text = None
    stacked: bool = False


def listing(columns: Sequence[Heading], rows: Sequence[Sequence[Text]]) -> Table:
    """Make a table that is shown whole, however many rows it has."""
    return Table("", "", columns, rows, limit=len(rows), terminal=len(rows))


class Card(Block, frozen=True):
    """Something with a name of its own."""

    name: str
    title: Text
    blocks: Sequence[Block]
    state: State | None = None


class Chart(Block, frozen=True):
    """A picture that a script draws of ``data``; a terminal leaves it out."""

    name: str
    title: Text
    kind: str
    data: Mapping[str, str]
    blocks: Sequence[Block]


class Group(Block, frozen=True):
    """Blocks that belong together, below a heading where there is one; cards side by side."""

    blocks: Sequence[Block]
    heading: str | None = None


class Detail(Block, frozen=True):
    """What only the page has room for."""

    blocks: Sequence[Block]


class Fold(Block, frozen=True):
    """What is long: the page opens it on a click, or at once if it is ``opened``.

    A terminal draws it if it is ``whole``.
    """

    name: str
    summary: str
    blocks: Sequence[Block]
    whole: bool = False
    opened: bool = False


class Section(msgspec.Struct, frozen=True):
    """A part of page and screen, shown if it has blocks."""

    name: str
    title: str
    blocks: Sequence[Block]
    wide: bool = False
    first_s: float | None = None  # from when on its charts have points


class Input(msgspec.Struct, frozen=True, dict=True):
    """What sections are made of: the status document. ``brief``: for one screen."""

    document: Status
    brief: bool = False

    @cached_property
    def probes(self) -> list[LastRun]:
        """Every probe on every GPU, the GPUs in their order and the CPU after them."""
        return sorted(
            self.document.probes, key=lambda run: (run.gpu is None, run.gpu or 0, run.probe)
        )

    def uuid(self, number: int | None) -> str:
        """Name a GPU as the API does: by its UUID, ``cpu`` for none."""
        if number is None:
            return "cpu"
        gpus = self.document.gpus.items()
        return next((uuid for uuid, gpu in gpus if gpu.number == number), str(number))


def chart_name(gpu: int | None, probe: str, mode: str) -> str:
    """Name the chart of a metric: "history-gpu0-launch-submit"."""
    return "-".join(["history", *map(slug, (place(gpu), probe, mode))])


def slug(words: str) -> str:
    """Write words as a part of an id: "GPU 0" is "gpu0"."""
    safe = (c if c.isascii() and c.isalnum() else "_" for c in words[:40].replace(" ", ""))
    return "".join(safe).lower()


def upcoming(at_s: float, now_s: float) -> Timestamp:
    """Make a moment to come, to the second where it is less than an hour ahead."""
    return Timestamp(at_s, near=at_s - now_s < HOUR_S)


def to_do(fix: str | None) -> list[Block]:
    """Make the line that says what to do, where anything can be done."""
    return [Paragraph((Styled("To do: ", "strong"), Advice(fix)))] if fix else []


def code(words: str) -> Styled:
    """Make what is typed as it stands: a command or a path."""
    return Styled(words, "code")
