"""One Chromium and one history for all tests of the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tests.browser import past, worlds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Gone with the last test here: while it is open, asyncio.run finds a loop that runs."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here")
    with sync_playwright() as playwright:
        # Root's Chromium starts without its sandbox only; it sees pages of ours alone.
        made = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of a year; tests only read it."""
    folder = tmp_path_factory.mktemp("year")
    past.Past(worlds.DEVICE, spacing_s=300.0).write(folder)
    return folder


@pytest.fixture(scope="session")
def keep(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """Keep a picture of a page under a name, where pictures are asked for."""
    chosen = request.config.getoption("--screenshots")

    def kept(page: Page, name: str) -> None:
        if chosen:
            page.screenshot(path=Path(chosen) / f"{name}.png", full_page=True)

    return kept
