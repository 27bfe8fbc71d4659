"""Lines on the whole terminal until a key or a signal ends it: `status --watch`, and for `top`.

Textual keeps the terminal, its size and its keys; whatever ends it, the terminal is as it was. Only
rows that changed are drawn. It takes 0.3 s to import, so only these verbs load it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpud import output
from gpud.arguments import INTERRUPTED
from gpud.core.errors import ConfigError, GpudError
from gpud.document.status import read
from gpud.place import document
from gpud.show import status
from gpud.show.view import BAD, QUIET, Span, View, line, narrowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from textual.app import ComposeResult

    from gpud.document.status import Status
    from gpud.place import Place
    from gpud.show.view import Line

ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def check(instead: str) -> None:
    """Refuse to begin where there is no terminal to draw on.

    Errors: ``ConfigError``, with what to type instead.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on the last
    if output.dumb() or not all(stream.isatty() for stream in streams):
        raise ConfigError("this needs a terminal that can move its cursor", fix=instead)


def run(app: FullScreen) -> int:
    """Show it until it ends; 0 for q, 128 and the signal for a signal."""
    code = app.run(mouse=False)
    return app.return_code or 0 if code is None else code


class Lines(ScrollView, can_focus=True):
    """Lines that scroll where they do not fit."""

    DEFAULT_CSS = "Lines { scrollbar-size: 0 0; } Lines:focus { background-tint: 0%; }"

    def __init__(
        self,
        *,
        colour: bool,
        resized: Callable[[], None],
        id: str,  # noqa: A002  # Textual's name
    ) -> None:
        super().__init__(id=id)
        self._colour = colour
        self._resized = resized
        self._lines: Sequence[Line] = ()

    def on_resize(self) -> None:
        """Let everything be drawn for another size, once it is laid out."""
        self._resized()

    def show(self, lines: Sequence[Line]) -> None:
        """Take other lines, and draw the rows that changed."""
        width, top = self.size.width, self.scroll_offset.y
        pairs = enumerate(zip_longest(self._lines, lines))
        changed = [Region(0, y - top, width, 1) for y, (old, new) in pairs if old != new]
        self._lines = lines
        self.virtual_size = Size(width, len(lines))
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Draw a row."""
        row = y + self.scroll_offset.y
        spans = self._lines[row] if row < len(self._lines) else ()
        segments = [
            Segment(span.text, _style(span.style) if self._colour else None) for span in spans
        ]
        return Strip(segments).adjust_cell_length(self.size.width)


@cache
def _style(words: str) -> Style:
    return Style.parse(words) if words else Style()


class FullScreen(App[int]):
    """The terminal's other page: ``drawn`` above, ``foot`` in its last rows."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #body { height: 1fr; }
    #foot { height: 1; dock: bottom; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("q,Q,ctrl+d", "leave(0)"),
        Binding("ctrl+c", f"leave({INTERRUPTED})", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, colour: str) -> None:
        super().__init__(ansi_color=True)
        coloured = output.coloured(colour)
        self._ascii_only = output.ascii_only()  # Textual puts itself in its place
        self.body, self.bottom = (
            Lines(colour=coloured, resized=self.draw, id=name) for name in ("body", "foot")
        )

    def compose(self) -> ComposeResult:
        """Lay the two out."""
        yield self.body
        yield self.bottom

    def on_mount(self) -> None:
        """Leave on signals too, and draw all of it again after a stop."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        loop = asyncio.get_running_loop()
        for number in ENDS:
            loop.add_signal_handler(number, partial(self.exit, 128 + number))
        self.body.focus()

    def action_leave(self, code: int) -> None:
        """End with an exit code."""
        self.exit(code)

    @property
    def view(self) -> View:
        """The room of the body."""
        size = self.body.size
        return View(size.width, size.height, ascii_only=self._ascii_only)

    def draw(self) -> None:
        """Draw what is so now, once there is room."""
        view = self.view
        if not view.width:
            return
        lines = self.drawn(view)
        self.body.show(lines)
        below = len(lines) - (view.height or 0) - self.body.scroll_offset.y
        *news, keys = self.foot()
        more = [Span(f"  {below} below", QUIET)] * (below > 0)
        foot = narrowed([*news, (*keys, *more)], view)
        self.bottom.show(foot)
        if self.bottom.size.height != len(foot):
            self.bottom.styles.height = len(foot)
            self.call_after_refresh(self.draw)

    def drawn(self, view: View) -> list[Line]:
        """Give the lines of the body."""
        raise NotImplementedError

    def foot(self) -> list[Line]:
        """Give the last rows; the very last has the keys."""
        return [line(Span("q: leave", QUIET))]


def watch(run_dir: Path, place: Place, *, every_s: float, colour: str) -> int:
    """Show the status until a key or a signal ends it; 0 for q, 128 and the signal for a signal.

    Errors: ``ConfigError`` where there is no terminal to draw on.
    """
    check(f"watch -n {every_s:g} gpud status")
    return run(WatchScreen(run_dir, place, every_s, colour))


class WatchScreen(FullScreen):
    """The document that was published last, read anew every ``every_s`` seconds."""

    def __init__(self, run_dir: Path, place: Place, every_s: float, colour: str) -> None:
        super().__init__(colour)
        self._run_dir, self._place, self._every_s = run_dir, place, every_s
        self._document: Status | None = None

    def on_mount(self) -> None:
        """Draw again and again."""
        super().on_mount()
        self.set_interval(self._every_s, self.draw)

    def drawn(self, view: View) -> list[Line]:
        """Draw what was published last, below what is wrong now."""
        trouble = None
        try:
            if (latest := document(self._run_dir)) is None:
                trouble = self._place.not_running(self._run_dir)
            else:
                self._document = read(latest)
        except (GpudError, OSError) as error:
            fix = getattr(error, "fix", None)
            trouble = f"{error}; {fix}" if fix else str(error)
        shown = [] if trouble is None else narrowed([line(Span(trouble, BAD))], view)
        room = View(view.width, (view.height or 0) - len(shown) + 1, ascii_only=view.ascii_only)
        if self._document is not None:
            shown += status.screen(self._document, time.time(), room)
        return shown
