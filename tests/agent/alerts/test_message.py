"""Texts that are shown: harmless, bounded, and still what was meant."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.alerts.message import (
    MOST_LABELS,
    TEXT_LIMIT,
    Message,
    ascii_line,
    body,
    inert,
    title,
)
from tests.agent.alerts.telling import LOST, SLOW, ended, firing, hostile

ANY = st.text(st.characters(), max_size=200)


def test_a_megabyte_in_every_field_becomes_a_page() -> None:
    alert = hostile(Path("/mark"), long=True)
    parts = [alert.name, alert.summary, alert.description, alert.fix or "", *alert.labels.values()]
    assert max(map(len, parts)) <= TEXT_LIMIT
    assert alert.summary.endswith("...")


def test_of_a_thousand_labels_a_few_are_told() -> None:
    from dataclasses import replace

    many = replace(SLOW, labels={f"label{number}": "x" for number in range(1000)})
    assert len(inert(many).labels) == MOST_LABELS


@given(ANY, st.integers(0, 300))
def test_a_line_is_printable_ascii_and_no_longer_than_asked(text: str, longest: int) -> None:
    line = ascii_line(text, longest)
    assert len(line) <= longest
    assert all(" " <= letter <= "~" for letter in line)


def test_what_physicists_write_stays_readable_in_ascii() -> None:
    assert (
        ascii_line("12.4 \u2192 17.1 \u00b5s, \u00b12 % \u2026", 80) == "12.4 -> 17.1 us, +-2 % ..."
    )


def test_a_title_says_how_bad_how_many_and_where() -> None:
    assert title(firing(SLOW)) == "gpud: warning"
    assert title(firing(SLOW, LOST), "ada") == "gpud on ada: 2 alerts"
    over = ended(SLOW, SLOW.starts_s + 1)
    assert title(Message((), (over,)), "a\x1bb") == "gpud on a\\x1bb: resolved"


def test_a_body_says_what_and_what_to_do() -> None:
    over = ended(LOST, LOST.starts_s + 1)
    told = Message((SLOW,), (over,))
    assert body(told, details=False) == f"{SLOW.summary}\nresolved: {LOST.summary}"
    assert body(told) == (
        f"{SLOW.summary}\n{SLOW.description}\nFix: {SLOW.fix}\n\nresolved: {LOST.summary}"
    )
