from __future__ import annotations

from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.serve.markup import LONGEST, Html, el, joined, plain, text
from tests.show.reading import Page

ANYTHING = st.text(st.characters(codec=None), max_size=200)


@given(ANYTHING, ANYTHING)
def test_whatever_is_said_only_our_elements_come_of_it(words: str, value: str) -> None:
    outer, inner = Page(el("i", words, el("b", words), title=value)).all()
    assert (outer.tag, outer.attributes) == ("i", {"title": plain(value)})
    assert (inner.tag, inner.attributes) == ("b", {})
    assert outer.text == 2 * plain(words)
    shown = text(words)
    shown.encode()  # no half character is left
    assert not [c for c in shown if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066"]


@given(st.text("abcäµ \u2026&<", max_size=200))
def test_what_can_be_shown_is_shown_as_it_is(words: str) -> None:
    assert unescape(text(words)) == words


def test_a_text_is_cut_and_markup_passes_where_text_beside_it_does_not() -> None:
    assert len(plain("x" * 1_000_000)) == LONGEST
    assert (text("abcdef", 4), text("abcd", 4)) == ("abc\u2026", "abcd")
    assert joined(Html("<i>"), "<i>", None, ["a", Html("</i>")]) == "<i>&lt;i&gt;a</i>"
    assert joined(el("i", "&")) == "<i>&amp;</i>"


def test_attributes_have_values_or_none_or_are_left_out() -> None:
    made = el("td", class_="n", data_live=True, hidden=False, title=None, tabindex=0)
    assert made == '<td class="n" data-live tabindex="0"></td>'
    assert el("meta", charset="utf-8") == '<meta charset="utf-8">'
