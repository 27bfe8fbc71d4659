"""What dockerd says when it does not start, recorded, and what gpud makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.report import Owner
from gpud.root.dockerd_facts import (
    LONGEST_DETAIL,
    SUBJECTS,
    DockerdCause,
    DockerdState,
    Exit,
    StartCondition,
    last_words,
    plain,
)
from gpud.root.dockerd_rules import (
    RULES,
    binary_missing,
    explain,
    socket_elsewhere,
    socket_taken,
)

DOCUMENT = Path(__file__).parents[2] / "docs/dockerd.md"
CAPTURES = sorted(Path(__file__).parents[1].joinpath("captures/dockerd").rglob("*.log"))


def lines_of(capture: Path) -> tuple[str, ...]:
    return tuple(capture.read_text().splitlines())


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_failure_has_the_cause_of_its_name(capture: Path) -> None:
    cause = explain(lines_of(capture))
    assert cause is not None
    assert cause.slug == capture.stem.partition("-")[0]
    assert cause.detail
    assert cause.fix
    if SUBJECTS & cause.watch and capture.stem != "tls_invalid":
        assert cause.subject


def test_every_rule_has_a_recording() -> None:
    assert {rule.slug for rule in RULES} == {path.stem.partition("-")[0] for path in CAPTURES}


def test_slugs_are_few_and_fit_into_labels() -> None:
    slugs = [rule.slug for rule in RULES]
    assert len(set(slugs)) == len(slugs) <= 30
    assert all(slug.replace("_", "").isalpha() and slug.islower() for slug in slugs)


@given(st.lists(st.text(), max_size=20))
def test_whatever_dockerd_says_there_is_an_answer_of_bounded_size(lines: list[str]) -> None:
    cause = explain(tuple(lines))
    assert cause is None or len(cause.detail) <= LONGEST_DETAIL
    assert all(len(plain(line)) <= LONGEST_DETAIL for line in lines)
    words = last_words(tuple(lines))
    assert words is None or len(words) <= 3 * (LONGEST_DETAIL + 3)


def test_an_unknown_failure_has_no_cause_and_keeps_its_words() -> None:
    log = ("level=info msg=a", "failed to start daemon: the moon is in the wrong house")
    assert explain(log) is None
    assert Exit(code=1, log=log).words() == f"exited with code 1: {log[1]}"


@pytest.mark.parametrize(
    "line",
    [
        "Error initializing network controller: iptables failed: somebody holds the xtables lock",
        "Error initializing network controller: iptables failed: Resource temporarily unavailable",
        "failed to start daemon: inotify_add_watch /etc/cdi: no space left on device",
    ],
)
def test_what_passes_or_means_something_else_is_not_taken_for_a_misconfiguration(line: str) -> None:
    assert explain((line,)) is None


def test_a_warning_about_a_read_only_place_is_not_why_dockerd_ended() -> None:
    warning = 'level=warning msg="cannot write /sys/x: read-only file system"'
    assert explain((warning, "failed to start daemon: something else")) is None


def test_logfmt_is_read_for_its_message_and_error_and_long_words_keep_both_ends() -> None:
    line = r'time="2026-11-21T10:00:00Z" level=error msg="no \"driver\"" error="not here" module=x'
    assert plain(line) == 'no "driver": not here'
    long = plain(f"who speaks{'x' * 900}what is wrong")
    assert len(long) == LONGEST_DETAIL
    assert (long[:10], long[-13:]) == ("who speaks", "what is wrong")


def test_the_last_words_of_a_crash_loop_are_a_few_lines_without_repetition() -> None:
    log = ("level=info msg=a", *("level=error msg=b",) * 9, "failed to start daemon: c")
    assert last_words(log) == "level=error msg=b | failed to start daemon: c"


def test_every_watch_is_waited_for_by_something() -> None:
    assert {watch for rule in RULES for watch in rule.watch} == set(StartCondition)


def table(name: str) -> list[str]:
    """The rows of one table of the document, without its heading."""
    inside = DOCUMENT.read_text().split(f"<!-- {name} -->\n")[1]
    return inside.splitlines()[2:]


def row(cause: DockerdCause, mark: str = "") -> str:
    watched = ", ".join(watch for watch in StartCondition if watch in cause.watch)
    return f"| `{cause.slug}`{mark} | {cause.fix} | {watched or '`gpud restart` only'} |"


def rows() -> list[str]:
    """One row a cause; a mark where only versions after 20.10 are recorded."""
    result: dict[str, str] = {}
    for capture in CAPTURES:
        cause = explain(lines_of(capture))
        assert cause is not None
        result.setdefault(cause.slug, row(cause, "" if capture.parent.name != "later" else " *"))
    for cause in (
        binary_missing("dockerd"),
        socket_taken("/run/docker.sock", "python3 (pid 17)"),
        socket_elsewhere("/run/docker.sock", ("tcp://127.0.0.1:2375",)),
    ):
        result[cause.slug] = row(cause)
    return [result[slug] for slug in sorted(result)]


def test_the_document_lists_every_cause_with_its_fix_and_what_ends_it() -> None:
    assert table("causes") == rows()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("owners", list(Owner)),
        ("states", list(DockerdState)),
        ("restarts", ["killed", "exited", "hung", "containerd_gone", "start_failed", "taken_over"]),
    ],
)
def test_the_document_lists_every_value(name: str, values: list[str]) -> None:
    assert [line.split("`")[1] for line in table(name)] == [str(value) for value in values]
