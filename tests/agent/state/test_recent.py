"""The bounded past of every series, and the line of bars that is drawn of it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpud.agent.history.store import History, Store
from gpud.agent.state import recent
from gpud.agent.state.board import Board
from gpud.agent.state.recent import MOST, RecentPoint
from gpud.agent.state.snapshot import RecentKey
from gpud.core.sample import Backend, Failure, Flag, Pace, ProbeSpec, Reason, Unit
from gpud.show.text import ASCII_BARS, sparkline
from tests import snapshots
from tests.events import altered, post, probes_listed, recent_read, run_finished
from tests.histories import BEGUN_S, failed, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.state.snapshot import Recent, Snapshot


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
    series = snapshot.measure.recent[SUBMIT]
    assert len(series.at_s) == len(series.medians) == MOST
    assert series.at_s[0] == 300.0
    assert series.medians[-1] == pytest.approx(65e-6)


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
    series = recent_read(past)(snapshot).measure.recent[SUBMIT]
    assert series.at_s == (60.0, 120.0, 180.0, 240.0)
    assert series.medians == (1.0, 2.0, 3.0, 4.0)
    assert recent_read(())(snapshot).measure.recent == snapshot.measure.recent


def test_a_clock_that_was_set_back_leaves_no_points_of_the_future() -> None:
    snapshot = with_points(machine(), read(SUBMIT, 9e6, 1.0), read(SUBMIT, 1.0, 2.0))
    assert snapshot.measure.recent[SUBMIT].at_s == (1.0,)


def test_what_is_published_is_short() -> None:
    snapshot = launched(launched(machine(), 1000.25, 1.23456789e-6), 1060.5, 2e-6)
    (line,) = [line for line in recent.document(snapshot.measure.recent) if line.mode == "submit"]
    assert (line.from_s, line.after_s, line.medians) == (1000.25, (0, 60), (1.235e-6, 2e-6))


RISING = tuple(map(float, range(8)))


@pytest.mark.parametrize(
    ("times", "values", "width", "drawn"),
    [
        (RISING, RISING, 20, "▁▂▃▄▅▆▇█"),
        (range(60), [1.0] * 58 + [2.0, 3.0], 3, "▁▅█"),
        ([0, 60, 120, 9e6, 9e6 + 60], [1, 1, 1, 2, 2], 9, "▁▁▁ ██"),
        ([0, 1, 2, 3], [100.0, 100.5, 100.0, 99.5], 9, "▅▅▅▄"),
    ],
    ids=["from least to most", "the newest", "a time without points is a blank", "noise is flat"],
)
def test_bars_show_the_newest_points_between_their_least_and_most(
    times: Sequence[float], values: Sequence[float], width: int, drawn: str
) -> None:
    assert sparkline(times, values, width=width) == drawn
    if drawn[-1] == "█" and len(drawn) == len(ASCII_BARS):
        assert sparkline(times, values, width=width, ascii_only=True) == ASCII_BARS


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
    drawn = sparkline(times, values, width=width, ascii_only=ascii_only)
    assert len(drawn) <= width
    assert not ascii_only or drawn.isascii()


SMALL = ProbeSpec("launch", Backend.CUDA, Pace.SMALL, Unit.SECONDS, ("submit",), 10, "x")


def recalled(directory: Path, runs: list[Run], spec: ProbeSpec = SMALL) -> dict[RecentKey, Recent]:
    with closing(Store(directory)) as store:
        store.append(runs)
    board = Board(snapshots.bare())

    async def start() -> None:
        history = History(directory)
        post(board, probes_listed((spec,), {}, 0.0))
        await asyncio.wait_for(recent.restore(history, board), 20)
        await history.close()

    asyncio.run(start())
    return dict(board.read().measure.recent)


def test_the_newest_clean_runs_come_back_whatever_lies_between(tmp_path: Path) -> None:
    runs = [
        each
        for n in range(MOST + 10)
        for each in (
            run(BEGUN_S + 60 * n, 1e-6 * (n + 1)),
            run(BEGUN_S + 60 * n + 20, 1.0, flags=(Flag.BUSY,)),
            failed(BEGUN_S + 60 * n + 40),
        )
    ]
    series = recalled(tmp_path, runs)[RecentKey("GPU-1", "launch", "submit")]
    assert series.at_s == tuple(BEGUN_S + 60.0 * n for n in range(10, MOST + 10))
    assert max(series.medians) < 1e-4
