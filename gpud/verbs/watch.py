"""``gpud status --watch``: the status again and again, on the whole terminal, until q."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpud.core.errors import GpudError
from gpud.document.status import read
from gpud.place import document, legible
from gpud.show import status
from gpud.show.view import BAD, Span, View, line, narrowed
from gpud.verbs import screen
from gpud.verbs.screen import FullScreen

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.place import Place
    from gpud.show.view import Line


def run(run_dir: Path, place: Place, *, every_s: float, colour: str) -> int:
    """Show the status until a key or a signal ends it; 0 for q, 128 and the signal for a signal.

    Errors: ``ConfigError`` where there is no terminal to draw on.
    """
    screen.check(f"watch -n {every_s:g} gpud status")
    return screen.run(WatchScreen(run_dir, place, every_s, colour))


class WatchScreen(FullScreen):
    """The document that was published last, read anew every ``every_s`` seconds."""

    def __init__(self, run_dir: Path, place: Place, every_s: float, colour: str) -> None:
        super().__init__(colour)
        self._run_dir, self._place, self._every_s = run_dir, place, every_s
        self._published: dict[str, Any] | None = None

    def on_mount(self) -> None:
        """Draw again and again."""
        super().on_mount()
        self.set_interval(self._every_s, self.draw)

    def drawn(self, view: View) -> list[Line]:
        """Draw what was published last, below what is wrong now."""
        trouble = None
        try:
            latest = document(self._run_dir)
            if latest is None:
                trouble = self._place.not_running(self._run_dir)
            self._published = latest or self._published
        except (GpudError, OSError) as error:
            trouble = str(error)
        shown = [] if trouble is None else narrowed([line(Span(trouble, BAD))], view)
        room = View(view.width, (view.height or 0) - len(shown) + 1, ascii_only=view.ascii_only)
        if self._published is not None:
            try:
                with legible():
                    shown += status.screen(read(self._published), time.time(), room)
            except GpudError as error:
                shown += narrowed([line(Span(f"{error}; {error.fix}", BAD))], view)
        return shown
