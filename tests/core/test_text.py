from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.text import escaped


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    shown = escaped(text)
    assert not [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066"]


def test_what_was_there_can_still_be_read() -> None:
    assert escaped("RTX\x1b[2J\n") == "RTX\\x1b[2J\\x0a"
    assert escaped("a\n\tb\x07", lines=True) == "a\n\tb\\x07"
