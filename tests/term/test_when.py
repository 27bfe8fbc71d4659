"""Moments as people write them, with and without an offset from UTC."""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.term.when import moment

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("90s", NOW_S - 90),
        ("30m", NOW_S - 1800),
        ("1.5h", NOW_S - 5400),
        ("3d", NOW_S - 3 * 86400),
        ("1w", NOW_S - 7 * 86400),
        ("2026-11-01T08:00:00Z", 1793520000.0),
        ("2026-11-01T08:00:00+02:00", 1793512800.0),
        ("2026-11-01", datetime(2026, 11, 1).astimezone().timestamp()),
        ("2026-11-01 08:00", datetime(2026, 11, 1, 8).astimezone().timestamp()),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, at_s: float) -> None:
    assert moment(text, now_s=NOW_S) == pytest.approx(at_s)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2x", "-2h", "2 h", "²h", "2026-13-01", "9" * 40, "nan", "\x1b[31m"]
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write 30m, 2h, 3d") as caught:
        moment(text, now_s=NOW_S)
    assert str(caught.value).isprintable()


@given(st.text(max_size=20))
def test_whatever_is_written_is_a_moment_or_refused(text: str) -> None:
    try:
        found_s = moment(text, now_s=NOW_S)
    except ValueError:
        return
    assert math.isfinite(found_s)
