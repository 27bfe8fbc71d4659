"""The runbooks: one for each alert, and nothing in them that does not exist."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from gpud import cli
from gpud.core import alerts as built_in
from tests.prometheus import rules
from tests.prometheus.rules import METRIC, ROOT, RUNBOOKS

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(RUNBOOKS.iterdir())
SECTIONS = ["What you notice", "How to look", "What to do", "When to leave it"]
OWN = {
    value for name, value in vars(built_in).items() if name.isupper() and str(value)[:4] == "Gpud"
}


def each(page: Path) -> str:
    return page.stem


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> list[rules.Rule]:
    return rules.read(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture(scope="module")
def source() -> str:
    """Where reasons, states, settings and the parts of gpud have their names."""
    files = [*ROOT.glob("gpud/**/*.py"), ROOT / "deploy/gpud.toml"]
    return "\n".join(file.read_text() for file in files)


def test_every_alert_has_a_page_and_every_page_an_alert(prometheus: list[rules.Rule]) -> None:
    assert len(OWN) == 6
    names = OWN | {rule.name for rule in prometheus if rule.is_alert}
    assert [page.name for page in PAGES] == sorted(f"{name}.md" for name in names)


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_a_page_has_its_name_what_it_means_and_four_sections(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {page.stem}"
    assert len(lines[2]) > 40
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    for above, below in zip(lines, [*lines[2:], "x"], strict=False):
        assert not (above.startswith("## ") and below.startswith("## ")), above


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_every_command_on_a_page_exists(page: Path) -> None:
    for words in rules.commands(page.read_text()):
        cli.parser().parse_args(words)  # what it does not know ends in SystemExit


def test_every_command_in_a_description_exists(prometheus: list[rules.Rule]) -> None:
    found = [words for rule in prometheus for words in rules.commands("".join(rule.texts))]
    assert len(found) > 20
    for words in found:
        cli.parser().parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_every_metric_on_a_page_is_documented_with_its_labels(page: Path) -> None:
    documented = rules.documented()
    for name in METRIC.findall(page.read_text()):
        assert name in documented


@pytest.mark.parametrize("page", PAGES, ids=each)
def test_every_name_and_link_on_a_page_leads_somewhere(page: Path, source: str) -> None:
    text = page.read_text()
    for _, target in re.findall(r"\[(\w+)\]\((\w+\.md)\)", text):
        assert (RUNBOOKS / target).is_file()
    name = r"`\[?(?:[a-z]+\.)?([a-z]+(?:_[a-z]+)*)\]?(?: = [^`]+)?`"
    words = re.findall(name, METRIC.sub("", text))
    assert not [word for word in words if word not in source and word != "memory"]
    for line in re.findall(r"`(gpud [^`]+)`", text):
        assert shlex.split(line)
