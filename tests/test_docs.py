"""The documents are right about commands, settings, metrics and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import gpud
from gpud import arguments
from gpud.core.errors import ConfigError
from gpud.core.settings import Secrets, parse, secret_keys
from gpud.root.dockerd_facts import DockerdState

TOP: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted(
    {TOP / "README.md", TOP / "SECURITY.md", *TOP.glob("docs/**/*.md"), *TOP.glob("deploy/**/*.md")}
    - {TOP / "docs/metrics.md"}
)
LINKED: Final = sorted(
    {*PAGES, TOP / "docs/metrics.md", *TOP.glob("*.md"), *TOP.glob("benchmarks/*.md")}
)
ONE_SCREEN_AND_A_HALF: Final = 750
"""Words, the comparison included."""
_LINK: Final = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_CALL: Final = re.compile(r"^(?:sudo )?(?:\.venv/bin/)?gpud((?: +[^|;&#<>()]+)?)")
_SCRIPT: Final = re.compile(
    r"(?!.*::)(?:sudo |\S*python )?((?:deploy|benchmarks)/[\w./-]+)((?: .+)?)"
)
_SERIES: Final = re.compile(r"(?<![:\w])gpud_[a-z0-9_]+\b(?![:*])")
_TEST: Final = r"`([\w/]+\.py)::(test_\w+)`"
_CLAIMS: Final = re.compile(r"^\| Claim \| Test \|\n\|---\|---\|\n((?:\|.*\n)+)", re.MULTILINE)
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


@pytest.mark.parametrize("page", LINKED, ids=named(LINKED))
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


def lines_of_code(text: str) -> list[str]:
    """The lines of a page's blocks of shell commands."""
    return [
        line.removeprefix("$ ").strip()
        for language, block in _FENCE.findall(text)
        if language in {"sh", "bash", "console"}
        for line in block.splitlines()
    ]


def spans(text: str) -> list[str]:
    return _CODE.findall(_FENCE.sub("", text))


def calls(text: str) -> list[str]:
    """What is written after ``gpud`` in code, in a block's lines and in spans."""
    matches = [_CALL.match(text.strip()) for text in (*lines_of_code(text), *spans(text))]
    return [match[1].strip() for match in matches if match is not None]


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_command_in_a_block_is_understood(page: Path) -> None:
    for line in lines_of_code(page.read_text()):
        if match := _CALL.match(line):
            arguments.parser().parse_args(match[1].split())  # an error ends in SystemExit


@pytest.mark.parametrize("page", LINKED, ids=named(LINKED))
def test_every_script_that_is_shown_exists_with_its_options(page: Path) -> None:
    for line in (*lines_of_code(page.read_text()), *spans(page.read_text())):
        match = _SCRIPT.match(line)
        if match is None:
            continue
        script = TOP / match[1]
        assert script.exists(), f"{match[1]} is not there"
        folder = "gpud/install" if script.name in {"install", "uninstall"} else match[1]
        modules = sorted(TOP.glob(f"{folder.replace('-', '_')}/*.py"))
        text = "".join(file.read_text() for file in (script, *modules) if file.is_file())
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", match[2].partition("#")[0]):
            if script.name != "test":  # hands its options to pytest
                assert option in text, f"{match[1]} has no {option}"


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
    kernels = "".join(each.read_text() for each in TOP.glob("gpud/child/kernels/*.ptx"))
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


def test_readme_is_one_screen_and_a_half_and_leads_to_each_symptom() -> None:
    readme = (TOP / "README.md").read_text()
    assert len(readme.split()) <= ONE_SCREEN_AND_A_HALF
    symptoms = anchors(TOP / "docs/troubleshoot.md") - {"troubleshoot-by-symptom", "something-else"}
    assert len(symptoms) == 6
    assert set(re.findall(r"docs/troubleshoot\.md#([\w-]+)", readme)) == symptoms


def test_states_and_reasons_of_troubleshooting_are_what_gpud_says() -> None:
    text = (TOP / "docs/troubleshoot.md").read_text()
    states = {word for line in re.findall(r"`dockerd (\w+)`(?:, `(\w+)`)?", text) for word in line}
    assert states - {""} <= set(DockerdState)
    source = "".join(file.read_text() for file in TOP.glob("gpud/**/*.py"))
    reasons = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)
    assert reasons
    assert [word for word in reasons if f'"{word}"' not in source] == []


@pytest.mark.parametrize(("page", "fewest"), [("tests/promises", 400), ("docs/security", 40)])
def test_every_test_that_shows_a_promise_or_a_defence_exists(page: str, fewest: int) -> None:
    named_tests = re.findall(_TEST, (TOP / f"{page}.md").read_text())
    assert len(named_tests) > fewest
    texts = {file: (TOP / "tests" / file) for file, _ in named_tests}
    assert [file for file, path in texts.items() if not path.is_file()] == []
    missing = [
        f"{file}::{name}"
        for file, name in named_tests
        if not re.search(rf"def {name}\b", texts[file].read_text())
    ]
    assert missing == []


def test_what_stays_from_version_to_version_is_promised_with_its_tests() -> None:
    text = (TOP / "docs/compatibility.md").read_text()
    rows = [row for row in text.splitlines() if re.search(_TEST, row)]
    subjects = [row.removeprefix("| ").partition(":")[0] for row in rows]
    assert subjects == ["Metrics", "JSON of `/api/v1` and of `--json`", "Settings", "History"]
    changes = (TOP / "CHANGELOG.md").read_text()
    assert f"\n## [{gpud.__version__}] - " in changes, "this version has a section"


def test_each_claim_of_the_threat_model_names_a_test() -> None:
    text = (TOP / "docs/security.md").read_text()
    claims = [row for table in _CLAIMS.findall(text) for row in table.splitlines()]
    assert len(claims) > 20
    assert [row for row in claims if not re.search(_TEST, row)] == []
