"""Hours summed up, and what is old deleted: on real files, under clocks that are wrong as well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent.history import retention, rollups, writes
from gpud.agent.history.records import Entry
from gpud.agent.history.rollups import BELIEVED_HOURS
from gpud.core.sample import Flag
from tests.histories import BEGUN_S, DAY_S, HOUR_S, column, done, failed, hours, opened, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.agent.history.records import Run
    from gpud.agent.history.store import Store

YEAR_S = 365 * DAY_S
FIGURES = "hour_s, driver, version, n, flagged, median, p10, p90, minimum, maximum"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


def written(store: Store, runs: list[Run]) -> None:
    assert store.append(runs) == []


def roll_up(store: Store) -> int:
    return done(store, rollups.roll_up)


def forget(store: Store, *, raw_days: float = 30, rollup_days: float = 730) -> None:
    done(store, lambda open_: retention.forget_runs(open_, raw_days))
    done(store, lambda open_: retention.forget_the_rest(open_, rollup_days))


def summaries(store: Store) -> list[tuple[Any, ...]]:
    query = f"SELECT {FIGURES} FROM rollups ORDER BY hour_s, driver, version"  # noqa: S608
    return store.read(lambda connection: connection.execute(query).fetchall())


def rolled_hours(store: Store) -> list[object]:
    return column(store, "SELECT hour_s FROM rollups ORDER BY hour_s")


def run_hours(store: Store) -> list[float]:
    return [float(str(at)) for at in column(store, "SELECT finished_s FROM runs ORDER BY id")]


def test_an_hour_is_summed_up_once_another_has_begun(store: Store) -> None:
    figures = [1e-5, 2e-5, 3e-5, 4e-5, 5e-5]
    written(store, [run(BEGUN_S + number, figure) for number, figure in enumerate(figures)])
    assert store.write(rollups.roll_up) is False
    assert summaries(store) == []
    written(store, [run(BEGUN_S + HOUR_S)])
    roll_up(store)
    assert summaries(store) == [
        (BEGUN_S, "572.16", 1, 5, 0, 3e-5, pytest.approx(1.4e-5), pytest.approx(4.6e-5), 1e-5, 5e-5)
    ]


def test_marked_runs_are_counted_and_no_figure_rests_on_them(store: Store) -> None:
    written(
        store,
        [
            run(BEGUN_S, 1e-5),
            run(BEGUN_S + 1, 9e-5, flags=(Flag.BUSY,)),
            run(BEGUN_S + HOUR_S, 9e-5, flags=(Flag.LOW, Flag.COLD)),
            run(BEGUN_S + 2 * HOUR_S),
        ],
    )
    roll_up(store)
    first, second = summaries(store)
    assert first[3:] == (1, 1, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5)
    assert second[3:] == (0, 1, None, None, None, None, None)


def test_drivers_and_versions_are_never_summed_up_together(store: Store) -> None:
    written(
        store,
        [
            run(BEGUN_S, 1e-5),
            run(BEGUN_S + 1, 2e-5, driver_version="576.02"),
            run(BEGUN_S + 2, 3e-5, driver_version=None, probe_version=2),
            run(BEGUN_S + HOUR_S),
        ],
    )
    roll_up(store)
    assert [row[1:6] for row in summaries(store)] == [
        ("", 2, 1, 0, 3e-5),
        ("572.16", 1, 1, 0, 1e-5),
        ("576.02", 1, 1, 0, 2e-5),
    ]


def test_failed_runs_and_figures_that_are_none_are_passed_over(store: Store) -> None:
    written(store, [failed(BEGUN_S), run(BEGUN_S + 1), run(BEGUN_S + 2), run(BEGUN_S + HOUR_S)])
    store.write(lambda open_: open_.execute("UPDATE samples SET median = 'many' WHERE run_id = 2"))
    store.write(lambda open_: open_.execute("UPDATE runs SET conditions = '{half' WHERE id = 3"))
    store.write(lambda open_: open_.execute("UPDATE samples SET maximum = 9e999 WHERE run_id = 1"))
    roll_up(store)
    assert [row[1:5] for row in summaries(store)] == [("", 1, 1, 0)]


def test_to_do_it_again_changes_nothing(store: Store) -> None:
    written(store, hours(5, each=3))
    assert roll_up(store) == 5
    before = summaries(store)
    store.write(lambda open_: open_.execute("DELETE FROM states"))  # even from the beginning
    roll_up(store)
    assert summaries(store) == before


def test_a_run_that_comes_late_is_added_to_its_hour(store: Store) -> None:
    written(store, hours(3, each=2))
    roll_up(store)
    written(store, [run(BEGUN_S + 7, 3e-5), *hours(2, since_s=BEGUN_S + 3 * HOUR_S)])
    roll_up(store)
    assert [row[3] for row in summaries(store)] == [3, 2, 2, 1]


def test_a_summary_of_deleted_runs_is_not_replaced_by_one_of_the_few_that_came_late(
    store: Store,
) -> None:
    written(store, hours(40 * 24, each=3))
    roll_up(store)
    forget(store)
    assert run_hours(store)[0] > BEGUN_S
    before = summaries(store)[0]
    written(store, [run(BEGUN_S + 7, 9.0), *hours(2, since_s=BEGUN_S + 40 * DAY_S)])
    roll_up(store)
    assert summaries(store)[0] == before


def test_runs_older_than_raw_days_go_and_their_hours_stay(store: Store) -> None:
    written(store, hours(40 * 24))
    forget(store)
    assert len(run_hours(store)) == 40 * 24, "nothing is summed up yet"
    roll_up(store)
    forget(store)
    believed_s = BEGUN_S + (40 * 24 - 1 - BELIEVED_HOURS) * HOUR_S  # the last hour goes on
    assert run_hours(store)[0] == believed_s - 30 * DAY_S
    assert column(store, "SELECT count(*) FROM samples") == [len(run_hours(store))]
    assert len(rolled_hours(store)) == 40 * 24 - 1


def test_summaries_older_than_rollup_days_go_too(store: Store) -> None:
    written(store, hours(40 * 24))
    roll_up(store)
    forget(store, raw_days=2, rollup_days=10)
    believed_s = BEGUN_S + (40 * 24 - 1 - BELIEVED_HOURS) * HOUR_S
    assert rolled_hours(store)[0] == believed_s - 10 * DAY_S
    assert run_hours(store)[0] == believed_s - 2 * DAY_S


@pytest.mark.parametrize("away_s", [YEAR_S, 40 * DAY_S, -DAY_S, -YEAR_S, -30 * YEAR_S])
def test_a_clock_that_is_wrong_for_two_days_deletes_nothing(store: Store, away_s: float) -> None:
    written(store, hours(20 * 24))
    there_s = BEGUN_S + 20 * DAY_S
    written(store, hours(48, since_s=there_s + away_s))
    roll_up(store)
    forget(store)
    assert len(run_hours(store)) == 22 * 24
    written(store, hours(24, since_s=there_s + 2 * DAY_S))  # and it is set right again
    roll_up(store)
    forget(store)
    assert len(run_hours(store)) == 23 * 24
    assert set(range(BEGUN_S, there_s, HOUR_S)) <= set(rolled_hours(store))


def test_after_a_long_absence_what_is_old_stays_until_gpud_has_run_for_three_days(
    store: Store,
) -> None:
    written(store, hours(10 * 24))
    back_s = BEGUN_S + 100 * DAY_S
    written(store, hours(BELIEVED_HOURS, since_s=back_s))
    roll_up(store)
    forget(store)
    assert len(run_hours(store)) == 10 * 24 + BELIEVED_HOURS
    written(store, hours(2, since_s=back_s + BELIEVED_HOURS * HOUR_S))
    roll_up(store)
    forget(store)
    assert run_hours(store)[0] == back_s
    assert rolled_hours(store)[0] == BEGUN_S


def test_a_wrong_time_among_right_ones_is_kept_and_goes_with_them(store: Store) -> None:
    early, late = run(1.0), run(BEGUN_S + 9 * YEAR_S)
    written(store, [*hours(24), early, late, *hours(20 * 24, since_s=BEGUN_S + DAY_S)])
    roll_up(store)
    forget(store)
    assert {1.0, late.finished_s} <= set(run_hours(store))
    written(store, hours(30 * 24, since_s=BEGUN_S + 21 * DAY_S))
    roll_up(store)
    forget(store)
    assert not {1.0, late.finished_s} & set(run_hours(store))


def test_a_time_that_no_clock_shows_holds_nothing_up(store: Store) -> None:
    written(store, hours(2))
    store.write(lambda open_: open_.execute("UPDATE runs SET finished_s = 9e999 WHERE id = 1"))
    store.write(lambda open_: open_.execute("UPDATE runs SET finished_s = 'noon' WHERE id = 2"))
    written(store, hours(40 * 24, since_s=BEGUN_S + DAY_S))
    roll_up(store)
    forget(store)
    assert min(run_hours(store)) > BEGUN_S + 2 * DAY_S


def test_what_must_last_is_never_deleted(store: Store) -> None:
    def change(kind: str, number: int) -> Entry:
        return Entry(BEGUN_S + number, kind, {"old": "a", "new": str(number)})

    store.write(
        writes.events,
        [
            Entry(BEGUN_S, "gpu_seen", {"uuid": "GPU-1"}),
            Entry(BEGUN_S, "gpu_forgotten", {"uuid": "GPU-2"}),
            change("driver_version", 1),
            change("driver_version", 2),
            change("kernel", 3),
            Entry(BEGUN_S + 4, "kernel", {}),  # no change, and passed over by who asks for the last
            Entry(BEGUN_S + 5, "baseline_accepted", {"after_run": 30}),
            Entry(BEGUN_S + 6, "baseline_accepted", {"after_run": 400}),
            Entry(BEGUN_S + 7, "baseline_accepted", {"after_run": 30}),
        ],
    )
    written(store, hours(40 * 24))
    late_s = BEGUN_S + 39.0 * DAY_S
    for name, updated_s, ends_s in (
        ("fires", float(BEGUN_S), None),
        ("over", float(BEGUN_S), BEGUN_S + 5.0),
        ("under a clock set back", late_s, BEGUN_S + 5.0),
    ):
        row = (name, float(BEGUN_S), updated_s, ends_s, "{}")
        store.write(
            lambda open_, row=row: open_.execute("INSERT INTO alerts VALUES (?, ?, ?, ?, ?)", row)  # type: ignore[misc]
        )
    for at_s in (float(BEGUN_S), BEGUN_S + 39.0 * DAY_S):
        for table in ("alarms (stream, seq, at_s, body)", "verdicts (stream, since_s, at_s, body)"):
            query = f"INSERT INTO {table} VALUES ('[]', ?, ?, '{{}}')"  # noqa: S608
            store.write(lambda open_, q=query, a=at_s: open_.execute(q, (int(a), a)))  # type: ignore[misc]
    store.write(lambda open_: open_.execute("INSERT INTO states VALUES ('contexts', 300, 0, '{}')"))
    store.write(lambda open_: open_.execute("INSERT INTO states VALUES ('delivery', 0, 0, '{}')"))
    roll_up(store)
    forget(store, raw_days=2, rollup_days=10)
    assert column(store, "SELECT kind || ' ' || body FROM events ORDER BY id") == [
        'gpu_seen {"uuid":"GPU-1"}',
        'gpu_forgotten {"uuid":"GPU-2"}',
        'driver_version {"old":"a","new":"2"}',
        'kernel {"old":"a","new":"3"}',
        "kernel {}",
        'baseline_accepted {"after_run":400}',  # the detectors are at 300
        'baseline_accepted {"after_run":30}',  # the last of its kind
    ]
    kept = ["fires", "under a clock set back"]
    assert column(store, "SELECT fingerprint FROM alerts ORDER BY 1") == kept
    assert column(store, "SELECT at_s FROM alarms") == [BEGUN_S + 39.0 * DAY_S]
    assert column(store, "SELECT at_s FROM verdicts") == [BEGUN_S + 39.0 * DAY_S]
    assert column(store, "SELECT name FROM states ORDER BY name") == [
        "contexts",
        "delivery",
        "rollups",
    ]


@pytest.mark.parametrize("body", ["[]", "{half", '{"hours":"many"}', '{"hours":[1.5,null,"x"]}'])
def test_a_damaged_progress_is_begun_anew(store: Store, body: str) -> None:
    written(store, hours(5))
    row = ("rollups", 0, 0.0, body)
    store.write(lambda open_: open_.execute("INSERT INTO states VALUES (?, ?, ?, ?)", row))
    roll_up(store)
    assert len(rolled_hours(store)) == 4
    (kept,) = column(store, "SELECT body FROM states")
    assert len(json.loads(str(kept))["hours"]) == 4
