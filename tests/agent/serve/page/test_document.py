"""docs/page.md names what is on the page, in its order."""

from __future__ import annotations

import re
from pathlib import Path

from gpud.show.headline import SLOWER, WORDS
from tests.agent.serve.page import machines
from tests.agent.serve.page.measured import BIG
from tests.agent.serve.page.reading import read

TEXT = (Path(__file__).resolve().parents[4] / "docs/page.md").read_text()


def first_cells(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    below = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \|", below, re.MULTILINE)[1:]


def test_every_section_is_explained_in_the_order_of_the_page() -> None:
    shown = read(machines.slower(machines.fine(BIG), BIG))
    titles = [next(one.all("h2")).words for one in shown.all("section") if list(one.all("h2"))]
    assert first_cells("The sections") == titles


def test_every_word_of_the_state_is_explained() -> None:
    assert sorted(first_cells("The state")) == sorted({*WORDS.values(), SLOWER})


def test_every_verdict_on_the_page_is_among_those_that_are_explained() -> None:
    shown = read(machines.slower(machines.fine(BIG), BIG))
    verdicts = {row[2] for row in shown.rows("gpus")}
    assert verdicts <= set(first_cells("Verdicts"))
    assert len(verdicts) > 1
