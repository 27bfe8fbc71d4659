"""Bars for a distribution: what a person reads off them is what was counted."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gpud.core.histogram import ASCII_FULL, EIGHTHS, drawn
from gpud.core.sample import Buckets
from gpud.core.stats import LATENCY_BOUNDS_S, bucketed

BUCKETS = len(LATENCY_BOUNDS_S) + 1
COUNTS = st.lists(st.integers(0, 10**6) | st.just(0), min_size=BUCKETS, max_size=BUCKETS).map(
    lambda counts: Buckets(tuple(counts), 0.0)
)
TWO_HUMPS = Buckets(
    tuple(
        {8: 12, 9: 2900, 10: 310, 13: 1, 14: 640, 30: 2, BUCKETS - 1: 1}.get(i, 0)
        for i in range(BUCKETS)
    ),
    0.0,
)
WAYS = st.fixed_dictionaries({"ascii_only": st.booleans()})
BAR = re.compile(f"[{ASCII_FULL}{EIGHTHS[1:]}]+")


def bars(lines: tuple[str, ...]) -> list[tuple[str, int]]:
    """Each bar with the count beside it."""
    found = ((line, BAR.search(line)) for line in lines)
    return [(bar[0], int(line[bar.end() :].split()[0])) for line, bar in found if bar]


def eighths(bar: str) -> int:
    return sum(EIGHTHS.index(character) for character in bar)


def test_two_humps_and_a_tail_are_seen_as_such() -> None:
    assert drawn(TWO_HUMPS, width=64) == (
        " ≤ 5.96 µs  ███████████▉                              12   0.3 %",
        " ≤ 7.45 µs  █████████████████████████████████████   2900  75.0 %",
        " ≤ 9.31 µs  ██████████████████████████▋              310   8.0 %",
        " ≤ 11.6 µs",
        " ≤ 14.6 µs",
        " ≤ 18.2 µs  ███▎                                       1  <0.1 %",
        " ≤ 22.7 µs  ██████████████████████████████           640  16.6 %",
        "       ...  (15 empty)",
        "   ≤ 10 ms  █████▏                                     2  <0.1 %",
        "       ...  (3 empty)",
        "     > 1 s  ███▎                                       1  <0.1 %",
    )


def test_a_terminal_without_blocks_gets_the_same_in_ascii() -> None:
    lines = drawn(TWO_HUMPS, width=64, ascii_only=True)
    assert "".join(lines).isascii()
    assert lines[1] == "<= 7.45 us  #####################################   2900  75.0 %"
    assert len(lines) == len(drawn(TWO_HUMPS, width=64))


def test_nothing_counted_draws_nothing() -> None:
    assert drawn(Buckets((0,) * BUCKETS, 0.0)) == ()


def test_a_latency_is_in_the_row_whose_bound_it_does_not_exceed() -> None:
    (line,) = drawn(bucketed([1e-6, 1e-6]), ascii_only=True)
    assert line.startswith("   <= 1 us  #")
    assert line.endswith("      2 100.0 %")


@given(buckets=COUNTS, width=st.integers(40, 200), how=WAYS)
def test_every_bucket_that_holds_a_call_has_a_bar_and_its_count(
    buckets: Buckets, width: int, how: dict[str, bool]
) -> None:
    counted = [count for _, count in bars(drawn(buckets, width=width, **how))]
    assert counted == [count for count in buckets.counts if count]


@given(buckets=COUNTS, width=st.integers(0, 200), how=WAYS)
def test_no_line_is_wider_than_asked_for(
    buckets: Buckets, width: int, how: dict[str, bool]
) -> None:
    lines = drawn(buckets, width=width, **how)
    assert all(len(line) <= max(width, 40) for line in lines)
    assert not how["ascii_only"] or "".join(lines).isascii()


@given(buckets=COUNTS)
def test_more_calls_never_have_a_shorter_bar(buckets: Buckets) -> None:
    by_count = sorted((count, eighths(bar)) for bar, count in bars(drawn(buckets)))
    lengths = [length for _, length in by_count]
    assert lengths == sorted(lengths)


@given(buckets=COUNTS)
def test_the_lines_go_from_the_first_bucket_that_holds_a_call_to_the_last(buckets: Buckets) -> None:
    lines = drawn(buckets)
    held = [index for index, count in enumerate(buckets.counts) if count]
    if not held:
        assert lines == ()
        return
    skipped = sum(int(number) for number in re.findall(r"\((\d+) empty\)", "\n".join(lines)))
    rows = [line for line in lines if "empty)" not in line]
    assert len(rows) + skipped == held[-1] - held[0] + 1
    assert BAR.search(lines[0])
    assert BAR.search(lines[-1])
