"""Scrape a program while something happens to it, and keep every answer."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.program import Program

    Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]

PAUSE_S = 0.2


@contextlib.contextmanager
def watched(gpud: Program) -> Iterator[list[Scrape]]:
    """Scrape until the block ends; a scrape without an answer is empty."""
    scrapes: list[Scrape] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(PAUSE_S):
            scrapes.append(gpud.metrics())

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield scrapes
    finally:
        ended.set()
        thread.join()
