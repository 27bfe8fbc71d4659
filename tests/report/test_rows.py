"""What is read of a history: only what is sound, only what belongs to the time, from any schema."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpud.agent import commands, reader
from gpud.agent.schema import MIGRATIONS
from gpud.agent.store import FILE, Run, Store
from gpud.core import stats
from gpud.core.commands import BASELINE_ACCEPTED, EVERYTHING
from gpud.core.sample import Backend, Device, Failure, Flag, Reason, RunReport, Unit
from gpud.core.streams import StreamKey
from gpud.report import rows

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.report.rows import Rows

DEVICE = Device(0, "GPU-1", "n", "0000:01:00.0", "8.9", 46, 1, 1)
SUBMIT = StreamKey("GPU-1", "launch", "submit")
UNTIL_S = 1e6


def run(at_s: float, value: float = 1e-6, *flags: Flag, **known: Any) -> Run:
    sample = stats.summarised([value], mode="submit", unit=Unit.SECONDS)
    conditions = {"driver_version": "572.16", "probe_version": 1, **known}
    report = RunReport("launch", Backend.CUDA, DEVICE, (sample,), conditions=conditions)
    return Run(report, at_s, "boot", flags)


def written(folder: Path, *runs: Run) -> None:
    with closing(Store(folder, now=str)) as store:
        assert store.append(list(runs)) == []


def did(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def read(folder: Path, since_s: float = 0.0) -> Rows:
    return reader.ask(folder, lambda connection: rows.read(connection, since_s, UNTIL_S))


def values(found: Rows, key: StreamKey = SUBMIT) -> list[float]:
    return list(found.columns[key].values) if key in found.columns else []


def test_runs_of_the_time_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    written(tmp_path, run(50, 5.0), run(20, 2.0), run(5, 0.5), run(2e6, 9.0))
    found = read(tmp_path, since_s=10.0)
    assert [one.at_s for one in found.runs] == [50, 20]
    assert values(found) == [5.0, 2.0]
    assert [found.past[place].at_s for place in found.columns[SUBMIT].places] == [50, 20]


def test_marked_runs_are_apart_and_one_after_a_pause_is_not(tmp_path: Path) -> None:
    written(
        tmp_path, run(1), run(2, 1.0, Flag.BUSY), run(3, 1.0, Flag.RESUME), run(4, 1.0, Flag.COLD)
    )
    assert list(read(tmp_path).columns[SUBMIT].apart) == [0, 1, 0, 1]


def test_versions_and_power_sources_are_streams_of_their_own(tmp_path: Path) -> None:
    known = {"after.ac": False}
    written(tmp_path, run(1, 1.0), run(2, 2.0, probe_version=2), run(3, 3.0, **known))
    found = read(tmp_path)
    assert values(found) == [1.0]
    assert values(found, replace(SUBMIT, version=2)) == [2.0]
    assert values(found, replace(SUBMIT, on_battery=True)) == [3.0]


def test_a_failed_run_is_its_reason_and_has_no_figure(tmp_path: Path) -> None:
    failed = run(1)
    report = replace(failed.report, samples=(), failure=Failure(Reason.HUNG, "no answer"))
    written(tmp_path, replace(failed, report=report))
    found = read(tmp_path)
    assert [one.failure for one in found.runs] == [("hung", "no answer")]
    assert found.columns == {}


def test_damaged_rows_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    written(tmp_path, *(run(float(at), float(at)) for at in range(1, 9)))
    did(
        tmp_path,
        "UPDATE runs SET flags = 'nonsense' WHERE id = 1",
        "UPDATE runs SET failure = '[]' WHERE id = 2",
        "UPDATE runs SET conditions = x'ff' WHERE id = 3",  # then nothing is known of it
        "UPDATE samples SET median = 9e999 WHERE run_id = 4",
        "UPDATE samples SET median = 'x' WHERE run_id = 5",
        "UPDATE samples SET unit = 'parsecs' WHERE run_id = 6",
        "UPDATE samples SET median = -1.0 WHERE run_id = 8",
        "UPDATE runs SET probe = CAST(x'6cff' AS TEXT) WHERE id = 7",
        "INSERT INTO verdicts (stream, since_s, at_s, body) VALUES ('[]', 1, 1, '{}')",
        "INSERT INTO alarms (stream, seq, at_s, body) VALUES ('[null,1,2,3,4]', 1, 1, '{}')",
        "INSERT INTO alerts VALUES ('f', 1, 1, NULL, '{')",
    )
    found = read(tmp_path)
    assert found.damaged == {"runs": 2, "samples": 4, "verdicts": 1, "alarms": 1, "alerts": 1}
    assert values(found) == [3.0]
    assert len(found.runs) == 6


def test_an_older_history_is_read_as_far_as_it_knows(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
        connection.execute(
            "INSERT INTO runs (finished_s, boot_id, probe, backend, gpu_uuid, duration_s,"
            " conditions) VALUES (5.0, 'b', 'launch', 'cuda', 'GPU-1', 0.5, '{}')"
        )
        figures = (1, "submit", "seconds", 9, *[2.0] * 6)
        connection.execute(
            "INSERT INTO samples (run_id, mode, unit, n, median, p10, p90, p99, minimum, maximum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            figures,
        )
        connection.commit()
    found = read(tmp_path)
    assert values(found) == [2.0]
    assert (found.alerts, found.verdicts) == ((), ())


def test_hours_stand_in_for_runs_that_are_gone_and_only_for_those(tmp_path: Path) -> None:
    written(tmp_path, run(7200.0 * 2, 5.0))
    rolled = "INSERT INTO rollups VALUES ({}, 'GPU-1', 'launch', 'submit', 1, '{}', 'seconds',"
    did(
        tmp_path,
        rolled.format(0, "572.16") + " 10, 2, 3.0, 2.0, 4.0, 1.0, 9.0)",
        rolled.format(3600, "572.16") + " 0, 4, NULL, NULL, NULL, NULL, NULL)",  # marked runs only
        rolled.format(7200, "576.02") + " 10, 0, 3.0, 2.0, 4.0, 1.0, 9.0)",
        rolled.format(14400, "576.02") + " 10, 0, 3.0, 2.0, 4.0, 1.0, 9.0)",  # has its run still
    )
    found = read(tmp_path)
    assert values(found) == [3.0, 2.0, 4.0, 3.0, 2.0, 4.0, 5.0]
    assert sum(found.columns[SUBMIT].weights) == 21.0
    assert [(m.at_s, m.driver, m.runs) for m in found.past] == [
        (1800.0, "572.16", 12),
        (5400.0, "572.16", 4),
        (9000.0, "576.02", 10),
        (14400.0, "572.16", 1),
    ]
    places = list(found.columns[SUBMIT].places)
    assert places == [0, 0, 0, 2, 2, 2, 3]


def test_alerts_that_fired_at_any_moment_of_the_time_are_read(tmp_path: Path) -> None:
    written(tmp_path, run(1))
    with closing(Store(tmp_path, now=str)) as store:
        for number, (starts_s, ends_s) in enumerate(
            [(1.0, 5.0), (1.0, 50.0), (20.0, None), (2e6, None)]
        ):
            row = (f"f{number}", starts_s, starts_s, ends_s, json.dumps({"name": f"A{number}"}))
            store.write(
                lambda to, row=row: to.execute(  # type: ignore[misc]
                    "INSERT INTO alerts VALUES (?, ?, ?, ?, ?)", row
                )
            )
    found = read(tmp_path, since_s=10.0)
    assert [(one["name"], one["ends_s"]) for one in found.alerts] == [("A1", 50.0), ("A2", None)]


def test_what_a_person_said_in_the_time_is_read(tmp_path: Path) -> None:
    written(tmp_path, run(1))
    for at_s in (5.0, 50.0, 2e6):
        commands.accept(tmp_path, EVERYTHING, now_s=at_s)
    found = read(tmp_path, since_s=10.0)
    assert [(one.kind, one.at_s) for one in found.said] == [(BASELINE_ACCEPTED, 50.0)]
