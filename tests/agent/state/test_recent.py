"""The bounded past of every series, and the line of bars that is drawn of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.state import recent
from gpud.agent.state.recent import MOST, RecentPoint
from gpud.agent.state.snapshot import RecentKey
from gpud.core.sample import Failure, Flag, Reason, Unit
from gpud.show import sparkline
from tests import snapshots
from tests.events import altered, recent_read, run_finished

if TYPE_CHECKING:
    from gpud.agent.state.snapshot import Snapshot

SUBMIT = RecentKey(snapshots.DEVICE.uuid, "launch", "submit")


def machine() -> Snapshot:
    return altered(snapshots.bare(), specs=snapshots.SPECS)


def launched(snapshot: Snapshot, at_s: float, median_s: float, *flags: Flag) -> Snapshot:
    report = snapshots.launches(median_s)
    return run_finished(report, snapshots.DEVICE.uuid, at_s, at_s, flags)(snapshot)


def read(series: RecentKey, at_s: float, median: float, version: int = 1) -> RecentPoint:
    unit = Unit.SECONDS if series.probe == "launch" else Unit.BYTES_PER_SECOND
    return RecentPoint(series, unit, version, at_s, median)


def with_points(snapshot: Snapshot, *points: RecentPoint) -> Snapshot:
    measure = snapshot.measure
    return altered(snapshot, recent=recent.with_points(measure.recent, points))


def test_runs_of_the_small_pace_are_points_and_no_more_than_sixty() -> None:
    snapshot = machine()
    for minute in range(MOST + 5):
        snapshot = launched(snapshot, 60.0 * minute, 1e-6 * (minute + 1))
    kept = snapshot.measure.recent[SUBMIT]
    assert len(kept.at_s) == len(kept.medians) == MOST
    assert kept.at_s[0] == 300.0
    assert kept.medians[-1] == pytest.approx(65e-6)


def test_marked_and_failed_runs_and_medians_between_two_humps_are_no_points() -> None:
    snapshot = launched(launched(machine(), 0.0, 5e-6), 60.0, 9e-6, Flag.BUSY)
    broken = replace(snapshots.launches(), samples=(), failure=Failure(Reason.HUNG, "x"))
    snapshot = run_finished(broken, snapshots.DEVICE.uuid, 120.0, 120.0)(snapshot)
    assert snapshot.measure.recent[SUBMIT].medians == (5e-6,)
    assert RecentKey(snapshots.DEVICE.uuid, "launch", "roundtrip") not in snapshot.measure.recent


def test_a_new_version_of_a_method_begins_anew_and_an_old_one_does_not_come_back() -> None:
    snapshot = with_points(machine(), read(SUBMIT, 1.0, 1.0), read(SUBMIT, 2.0, 2.0, 2))
    assert snapshot.measure.recent[SUBMIT].medians == (2.0,)
    assert with_points(snapshot, read(SUBMIT, 3.0, 3.0)).measure.recent == snapshot.measure.recent


def test_the_history_comes_before_what_has_come_in_since_and_nothing_counts_twice() -> None:
    snapshot = with_points(machine(), read(SUBMIT, 180.0, 3.0), read(SUBMIT, 240.0, 4.0))
    past = (read(SUBMIT, 180.0, 3.0), read(SUBMIT, 60.0, 1.0), read(SUBMIT, 120.0, 2.0))
    kept = recent_read(past)(snapshot).measure.recent[SUBMIT]
    assert kept.at_s == (60.0, 120.0, 180.0, 240.0)
    assert kept.medians == (1.0, 2.0, 3.0, 4.0)
    assert recent_read(())(snapshot).measure.recent == snapshot.measure.recent


def test_a_clock_that_was_set_back_leaves_no_points_of_the_future() -> None:
    snapshot = with_points(machine(), read(SUBMIT, 9e6, 1.0), read(SUBMIT, 1.0, 2.0))
    assert snapshot.measure.recent[SUBMIT].at_s == (1.0,)


def test_what_is_published_is_short() -> None:
    snapshot = launched(launched(machine(), 1000.25, 1.23456789e-6), 1060.5, 2e-6)
    (line,) = [line for line in recent.document(snapshot.measure.recent) if line.mode == "submit"]
    assert (line.from_s, line.after_s, line.medians) == (1000.25, (0, 60), (1.235e-6, 2e-6))


def test_bars_rise_from_the_least_to_the_most() -> None:
    values = [float(n) for n in range(8)]
    assert sparkline.drawn(values, values, width=20) == "▁▂▃▄▅▆▇█"
    assert sparkline.drawn(values, values, width=20, ascii_only=True) == sparkline.ASCII_BARS


def test_only_the_newest_points_fit() -> None:
    times = [60.0 * n for n in range(60)]
    assert sparkline.drawn(times, [1.0] * 57 + [1.0, 2.0, 3.0], width=3) == "▁▅█"


def test_a_time_without_points_is_one_blank() -> None:
    assert sparkline.drawn([0, 60, 120, 9e6, 9e6 + 60], [1, 1, 1, 2, 2], width=9) == "▁▁▁ ██"


def test_noise_is_no_mountain() -> None:
    drawn = sparkline.drawn([0, 1, 2, 3], [100.0, 100.5, 100.0, 99.5], width=9)
    assert set(drawn) <= set("▄▅")


@given(
    st.lists(st.floats(-1e15, 1e15), max_size=90),
    st.integers(0, 70),
    st.booleans(),
)
def test_a_line_never_grows_beyond_its_room(
    values: list[float],
    width: int,
    ascii_only: bool,  # noqa: FBT001  # hypothesis passes it by name
) -> None:
    times = [float(n) for n in range(len(values))]
    drawn = sparkline.drawn(times, values, width=width, ascii_only=ascii_only)
    assert len(drawn) <= width
    assert not ascii_only or drawn.isascii()
