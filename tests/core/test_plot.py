"""Charts for a terminal: every run in its place, gaps as gaps, changes and baseline marked."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpud.core import plot
from gpud.core.plot import LABELS, Chart


def drawn(chart: Chart, *, ascii_only: bool = True) -> list[str]:
    rows = plot.drawn(chart, width=LABELS + 20, height=5, ascii_only=ascii_only)
    return [row[LABELS:].ljust(20) for row in rows]


def chart(*values: float, **more: object) -> Chart:
    points = [(float(n), value) for n, value in enumerate(values)]
    told: dict[str, object] = {"from_s": 0.0, "until_s": float(len(values)), "unit": "seconds"}
    return Chart(points=points, **(told | more))  # type: ignore[arg-type]


def test_low_is_below_and_old_is_left() -> None:
    rows = drawn(chart(*[float(n + 1) for n in range(20)]))
    assert rows[4][0] == "*"
    assert rows[0][19] == "*"
    assert rows[5] == "-" * 20


def test_a_time_without_runs_is_a_hole_in_the_dots_and_in_the_axis() -> None:
    points = [(float(n), 1.0) for n in (*range(8), *range(14, 20))]
    rows = drawn(Chart(points=points, from_s=0.0, until_s=20.0, unit="seconds"))
    assert rows[5] == f"{'-' * 8}{' ' * 6}{'-' * 6}"
    assert all(row[8:14].strip() == "" for row in rows[:5])


def test_changes_are_vertical_and_the_baseline_is_horizontal() -> None:
    rows = drawn(chart(*[2.0] * 20, baseline=1.0, marks=(10.0,)))
    assert [row[10] for row in rows[1:5]] == ["|"] * 4
    assert set(rows[4]) == {"-", "|"}
    assert rows[0].startswith("*")


def test_the_axis_is_in_units_a_person_reads() -> None:
    rows = plot.drawn(chart(10e-6, 20e-6), width=40, height=5, ascii_only=True)
    assert rows[0].startswith("  19.9 us |")
    assert rows[2].startswith("    15 us |")
    assert rows[4].startswith("  10.1 us |")
    assert "µs" in plot.drawn(chart(10e-6, 20e-6), width=40, height=5)[0]


def test_one_outlier_does_not_flatten_the_rest() -> None:
    values = [1.0 + n % 2 for n in range(200)]
    values[77] = 1e6
    label = plot.drawn(chart(*values), width=60, height=5)[0].split(" ")
    assert float(next(word for word in label if word)) <= 2.0


def test_without_a_point_there_is_no_chart() -> None:
    assert plot.drawn(chart(), width=40, height=5) == ()


@example(points=[(0.0, 957142857142858.0)], width=0, height=0, plain=True)
@given(
    st.lists(st.tuples(st.floats(-1e9, 1e10), st.floats(1e-9, 1e15)), min_size=1, max_size=60),
    st.integers(0, 120),
    st.integers(0, 20),
    st.sampled_from([True, False]),
)
def test_it_fills_its_room_and_no_more(
    points: list[tuple[float, float]], width: int, height: int, plain: object
) -> None:
    points.sort()
    told = Chart(points=points, from_s=points[0][0], until_s=points[-1][0], unit="seconds")
    rows = plot.drawn(told, width=width, height=height, ascii_only=bool(plain))
    assert len(rows) == max(height, 2) + 1
    assert max(map(len, rows)) <= max(width, LABELS + plot.NARROWEST)
    assert not plain or all(row.isascii() for row in rows)
    assert any(set(row[LABELS:]) - {" "} for row in rows[:-1])


@pytest.mark.parametrize("height", [2, 3, 14])
def test_a_constant_is_in_the_middle(height: int) -> None:
    rows = plot.drawn(chart(5.0, 5.0, 5.0), width=40, height=height, ascii_only=True)
    (row,) = [n for n, one in enumerate(rows[:-1]) if "*" in one]
    assert abs(row - (height - 1) / 2) <= 1
