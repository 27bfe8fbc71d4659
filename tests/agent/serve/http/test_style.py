"""The style sheet: what can be read on it, light and dark, and that it asks for nothing else."""

from __future__ import annotations

import re

import pytest

from gpud.agent.serve.http import assets

TEXT = (assets.FOLDER / assets.STYLE).read_text()
AA, LARGE = 4.5, 3.0
"""WCAG 2.2, 1.4.3 and 1.4.11: the contrast of text, and of the lines of a chart."""
WORDS = ("text", "quiet", "good", "warn", "bad", "accent")
LINES = ("line", "accent", "bad")
BEHIND = ("back", "soft")
OWN = {"good": "good-soft", "warn": "warn-soft", "bad": "bad-soft", "text": "bad-soft"}


PAIR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")


def variables(scheme: str) -> dict[str, str]:
    """Return the colours of a scheme by name."""
    return {name: dark if scheme == "dark" else light for name, light, dark in PAIR.findall(TEXT)}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read_on_every_ground_it_stands_on(scheme: str) -> None:
    known = variables(scheme)
    pairs = [(word, behind) for word in WORDS for behind in BEHIND]
    pairs += [*OWN.items(), ("accent", "warn-soft"), ("accent", "bad-soft"), ("back", "text")]
    poor = {
        pair: round(contrast(known[pair[0]], known[pair[1]]), 2)
        for pair in pairs
        if contrast(known[pair[0]], known[pair[1]]) < AA
    }
    assert poor == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_lines_of_a_chart_can_be_seen(scheme: str) -> None:
    known = variables(scheme)
    assert all(contrast(known[line], known[behind]) >= LARGE for line in LINES for behind in BEHIND)


def test_every_colour_is_a_variable_and_nothing_is_fetched() -> None:
    assert not re.search(r":[^;{}]*#[0-9a-f]{3,8}\b", PAIR.sub("", TEXT))
    assert {*WORDS, *LINES, *BEHIND, "rule"} <= variables("light").keys()
    assert not re.search(r"url\(|@import|https?:", TEXT)


def test_who_wants_no_motion_gets_none() -> None:
    assert TEXT.count("scroll-behavior: smooth") == 1
    before = TEXT.partition("scroll-behavior: smooth")[0]
    assert "(prefers-reduced-motion: no-preference)" in before[-80:]
    assert "transition" not in TEXT
    assert "animation" not in TEXT
