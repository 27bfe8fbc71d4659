"""Drivers over time, and what a stream brought under each: whatever order the clock was set to."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.core.sample import Unit
from gpud.report import tracks
from gpud.report.rows import Column, Moment

moments = st.lists(
    st.builds(
        Moment,
        st.floats(0, 1e6),
        st.sampled_from(["", "A", "B", "C"]),
        st.integers(1, 3),
    ),
    max_size=30,
)


def past(drivers: str) -> list[Moment]:
    """One moment a minute; a dot is one at which nobody knew the driver."""
    return [Moment(60.0 * at, "" if name == "." else name) for at, name in enumerate(drivers)]


def held(drivers: str) -> str:
    stretches, of = tracks.stretches(past(drivers))
    return "".join(stretches[number].driver or "." for number in of)


@pytest.mark.parametrize(
    ("said", "true"),
    [
        ("", ""),
        ("AAAA", "AAAA"),
        ("....", "...."),
        ("..AA", "AAAA"),  # what is unknown at the beginning is what was there then
        ("AA..BB", "AAAABB"),
        ("AAxAA", "AAAAA"),  # said once, while it was being replaced
        ("AAxyBB", "AAAABB"),
        ("AABBAA", "AABBAA"),
        ("AAB", "AAA"),
        ("A", "A"),
        ("A.B.A.B", "AAAAAAA"),
        ("A.A.B.B", "AAAABBB"),
    ],
)
def test_a_driver_holds_from_two_runs_in_a_row_on_and_unknown_is_no_change(
    said: str, true: str
) -> None:
    assert held(said) == true


def test_an_hour_of_runs_needs_no_second_one() -> None:
    stretches, of = tracks.stretches([Moment(0, "A", 9), Moment(60, "B", 9), Moment(120, "A", 9)])
    assert [one.driver for one in stretches] == ["A", "B", "A"]
    assert of == [0, 1, 2]


@given(moments)
def test_every_run_is_in_one_stretch_and_neighbours_differ(told: list[Moment]) -> None:
    stretches, of = tracks.stretches(told)
    assert len(of) == len(told)
    assert of == sorted(of)
    assert sum(one.runs for one in stretches) == sum(moment.runs for moment in told)
    assert all(a.driver != b.driver for a, b in pairwise(stretches))
    assert all(one.since_s <= one.until_s for one in stretches)


def column(*values: float, unit: Unit = Unit.SECONDS) -> Column:
    made = Column(unit)
    for place, value in enumerate(values):
        made.add(place, value)
    return made


def test_a_level_is_of_clean_runs_and_compares_with_the_one_before() -> None:
    made = column(10.0, 10.0, 11.0, 11.0)
    made.add(3, 99.0, apart=True)
    first, second = tracks.levels(made, [0, 0, 1, 1])
    assert (first.n, first.median, first.apart, first.slowdown) == (2, 10.0, 0, None)
    assert (second.n, second.median, second.apart) == (2, 11.0, 1)
    assert second.slowdown == pytest.approx(1.1)


def test_of_a_rate_less_is_slower_and_a_stretch_without_figures_is_passed_over() -> None:
    made = column(100.0, 50.0, unit=Unit.BYTES_PER_SECOND)
    made.add(1, 70.0, apart=True)
    first, last = tracks.levels(made, [0, 2])
    assert (first.stretch, last.stretch) == (0, 2)
    assert last.slowdown == pytest.approx(2.0)


@given(st.lists(st.floats(1, 100), min_size=1, max_size=30))
def test_weights_of_one_are_no_weights(values: list[float]) -> None:
    middle, p10, p90 = tracks.spread([(value, 1.0) for value in values])
    assert middle == pytest.approx(median(values))
    assert min(values) <= p10 <= middle <= p90 <= max(values)


def test_an_hour_stands_for_as_many_runs_as_it_had() -> None:
    many, few = [(10.0, 60.0 * 0.6), (9.0, 12.0), (11.0, 12.0)], [(20.0, 6.0)]
    assert tracks.spread([*many, *few]) == (10.0, 9.0, 11.0)


def test_pieces_of_a_chart_cover_the_time_and_are_few() -> None:
    for days in (0.01, 1, 30, 700, 3650):
        width_s = tracks.bin_width_s(0.0, days * 86400)
        assert days * 86400 / width_s <= tracks.MOST_BINS + 1e-9
    rng = random.Random(1)
    made = column(*(rng.random() + 1 for _ in range(500)))
    told = [Moment(at * 3600.0, "A") for at in range(500)]
    drawn = tracks.bins(made, told, 0.0, 500 * 3600.0)
    assert len(drawn) <= tracks.MOST_BINS
    assert all(one.p10 is not None and one.apart is None for one in drawn)


def test_marked_runs_are_drawn_apart_also_where_there_are_no_others() -> None:
    made = column(1.0)
    made.add(1, 9.0, apart=True)

    def drawn(later_s: float) -> list[tuple[float | None, float | None]]:
        told = [Moment(0.0, "A"), Moment(later_s, "A")]
        found = tracks.bins(made, told, 0.0, 30 * 86400.0)
        return [(one.median, one.apart) for one in found]

    assert drawn(7200.0) == [(1.0, 9.0)]
    assert drawn(86400.0) == [(1.0, None), (None, 9.0)]


def test_charts_begin_with_the_history_and_show_an_hour_at_least() -> None:
    month = 30 * 86400.0
    assert tracks.beginning([], 0.0, month) > month - 2 * 3600
    assert tracks.beginning([Moment(1.0, "A")], 0.0, month) == 0.0
    new = tracks.beginning([Moment(month - 60, "A"), Moment(month - 30, "A")], 0.0, month)
    assert new == pytest.approx(month - 1.02 * 3600)
