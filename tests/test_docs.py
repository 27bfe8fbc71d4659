"""What the documents say of commands, settings, metrics and files is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from gpud import arguments
from gpud.core.errors import ConfigError
from gpud.core.settings import Secrets, parse, secret_keys

TOP: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted(
    {TOP / "README.md", TOP / "SECURITY.md", *TOP.glob("docs/**/*.md"), *TOP.glob("deploy/**/*.md")}
    - {TOP / "docs/metrics.md"}
)
TWO_SCREENS: Final = 100
_LINK: Final = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_CALL: Final = re.compile(r"^(?:sudo )?(?:\.venv/bin/)?gpud((?: +[^|;&#<>()]+)?)")
_SERIES: Final = re.compile(r"(?<![:\w])gpud_[a-z0-9_]+\b(?![:*])")
_MADE: Final = ("_bucket", "_sum", "_count", "_created", "_total", "_info")
"""What Prometheus' formats append to a family's name."""


def named(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(TOP)) for page in pages]


def outside_code(text: str) -> str:
    return _CODE.sub("", _FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as Git hosts make them."""
    heads = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_link_leads_somewhere(page: Path) -> None:
    for to, anchor in _LINK.findall(outside_code(page.read_text())):
        target = (page.parent / to).resolve() if to else page
        assert target.exists(), f"{to} is not there"
        assert target.is_relative_to(TOP), f"{to} leads out of the project"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{to} has no heading {anchor}"


def options(verb: arguments.Verb | None) -> set[str]:
    """The options of a verb, and those before every verb."""
    groups = [] if verb is None else verb.groups
    named = [argument for group in groups for argument in group]
    return {name for names, _ in (*named, *arguments.TOP) for name in names} | {"-h", "--help"}


def verbs() -> dict[str, arguments.Verb]:
    """Every verb and every action of one, by what is typed."""
    table = dict(arguments.VERBS)
    for name, verb in arguments.VERBS.items():
        table |= {f"{name} {action}": each for action, each in verb.actions.items()}
    return table


def calls(text: str) -> list[str]:
    """What is written after ``gpud`` in code, in a block's lines and in spans."""
    blocks = [
        line
        for language, block in _FENCE.findall(text)
        if language in {"sh", "bash", "console"}
        for line in block.splitlines()
    ]
    spans = _CODE.findall(_FENCE.sub("", text))
    matches = [_CALL.match(text.strip()) for text in (*blocks, *spans)]
    return [match[1].strip() for match in matches if match is not None]


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_command_that_is_shown_exists_with_its_options(page: Path) -> None:
    table = verbs()
    for call in calls(page.read_text()):
        words = re.split(r"\s+", call.strip("[] ")) if call else []
        plain = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word[0] != "-"]
        verb = next((name for n in (2, 1) if (name := " ".join(plain[:n])) in table), None)
        if not plain and not any(word.startswith("--") for word in words):
            continue  # `gpud` alone, or a name with a placeholder
        assert verb is not None or not plain, f"gpud {call}: there is no such verb"
        has = options(table.get(verb or ""))
        for option in (word.strip("[],.:") for word in words if word.startswith(("[--", "--"))):
            assert option.split("=")[0] in has, f"gpud {call}: there is no {option}"


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_metric_that_is_named_is_documented(page: Path) -> None:
    documented = set(_SERIES.findall((TOP / "docs/metrics.md").read_text()))
    documented |= {name.removesuffix(end) for name in documented for end in _MADE}
    kernels = "".join(source.read_text() for source in TOP.glob("gpud/child/kernels/*.cu"))
    documented |= set(_SERIES.findall(kernels))
    for name in _SERIES.findall(page.read_text()):
        plain = {name, *(name.removesuffix(end) for end in _MADE)}
        assert plain & documented, f"{name} is no metric of docs/metrics.md and no kernel"


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_setting_that_is_shown_is_understood(page: Path) -> None:
    hidden = Secrets()
    for language, block in _FENCE.findall(page.read_text()):
        if language != "toml":
            continue
        try:
            secret_keys(block.encode(), "")
        except ConfigError:
            parse(block.encode(), {}, secrets=hidden)
        else:  # a secrets.toml, for the blocks of gpud.toml that follow
            hidden = Secrets(block.encode())
            parse(None, {}, secrets=hidden)


def test_the_readme_is_two_screens() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= TWO_SCREENS


def test_every_test_that_shows_a_promise_exists() -> None:
    kept = [
        row for row in (TOP / "docs/promises.md").read_text().splitlines() if "| goes" not in row
    ]
    named_tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", "\n".join(kept))
    assert len(named_tests) > 500
    texts = {file: (TOP / "tests" / file) for file, _ in named_tests}
    assert [file for file, path in texts.items() if not path.is_file()] == []
    missing = [
        f"{file}::{name}"
        for file, name in named_tests
        if not re.search(rf"def {name}\b", texts[file].read_text())
    ]
    assert missing == []
