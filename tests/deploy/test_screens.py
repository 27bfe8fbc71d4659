"""The pictures of docs/screens.md are those that deploy/build-screenshots makes, and small."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("playwright")

TOP: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (TOP / "docs/screens.md").read_text()
MOST_BYTES: Final = 150_000


def test_page_shows_each_picture_once_and_says_that_it_is_simulated() -> None:
    script = runpy.run_path(str(TOP / "deploy/build-screenshots"))
    made = [f"screens/simulated-{name}.png" for name in script["SCREENS"]]
    shown = re.findall(r"^!\[.+\]\((.+)\)\n\n\*Simulated\.\* ", PAGE, re.MULTILINE)
    assert shown == made == re.findall(r"\]\((screens/.+?)\)", PAGE)
    files = {TOP / "docs" / name for name in made}
    assert files == set((TOP / "docs/screens").iterdir())
    assert [file.name for file in files if file.stat().st_size > MOST_BYTES] == []
