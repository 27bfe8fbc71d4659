"""Telemetry of the past: hours in place of old minutes, ``gpud history --telemetry``, deletion."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import retention, telemetry
from gpud.agent.history.schema import MINUTE_S
from gpud.agent.history.telemetry import COLUMNS, GAUGES, REASONS
from gpud.agent.serve.local import exporting
from gpud.agent.telemetry.fields import FIELDS
from gpud.requests import HistoryRequest
from tests import serving
from tests.histories import BEGUN_S, DAY_S, HOUR_S, Asked, column, done, hours, opened, rfc
from tests.histories import telemetry as minute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.history.store import Store

NOW_S = time.time() // MINUTE_S * MINUTE_S


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Asked]:
    with serving.agent(tmp_path):
        yield Asked(tmp_path, capsys, "--telemetry")


def forty_days(store: Store) -> None:
    """Write a run and a minute of each hour, and delete what is old."""
    store.append(hours(40 * 24))
    rows = [minute(BEGUN_S + n * HOUR_S, 50.0 + n) for n in range(40 * 24)]
    store.write(telemetry.write_minutes, rows)
    done(store, retention.roll_up)
    for step_s, days in ((MINUTE_S, 30), (HOUR_S, 36)):
        done(store, lambda open_, s=step_s, d=days: retention.forget_telemetry(open_, s, d))  # type: ignore[misc]


def test_columns_are_fields_and_reasons_of_telemetry_in_the_file_as_in_the_export(
    tmp_path: Path,
) -> None:
    assert set(GAUGES) < set(FIELDS)
    with opened(tmp_path) as store:
        names = column(store, "SELECT name FROM pragma_table_info('telemetry')")
    assert names == ["step_s", "at_s", *COLUMNS[3:]]
    assert len(set(REASONS)) == len(REASONS)


def test_minutes_and_hours_go_by_their_own_age(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        forty_days(store)
        first_s = BEGUN_S + (40 * 24 - 1 - 72) * HOUR_S
        minutes = column(store, "SELECT at_s FROM telemetry WHERE step_s = 60 ORDER BY at_s")
        kept = column(store, "SELECT at_s FROM telemetry WHERE step_s = 3600 ORDER BY at_s")
        assert minutes[0] == first_s - 30 * DAY_S
        assert kept[0] == first_s - 36 * DAY_S
        assert minutes[-1] == kept[-1] == BEGUN_S + (40 * 24 - 1) * HOUR_S


def test_nothing_is_deleted_before_three_days_of_running(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append(hours(72))
        store.write(telemetry.write_minutes, [minute(0)])
        done(store, retention.roll_up)
        assert not store.write(retention.forget_telemetry, MINUTE_S, 1)
        assert column(store, "SELECT count(*) FROM telemetry") == [2]


def test_telemetry_is_bounded_though_no_run_is_ever_written(tmp_path: Path) -> None:
    """As many minutes stay as the settings' days have, and the three days beside them."""
    count = (1 + 3) * 24 * 60 + 700
    with opened(tmp_path) as store:
        rows = [minute(BEGUN_S + 60 * n, 50.0) for n in range(count)]
        store.write(telemetry.write_minutes, rows)
        done(store, lambda open_: retention.forget_telemetry(open_, MINUTE_S, 1))
        done(store, lambda open_: retention.forget_telemetry(open_, HOUR_S, 1))
        minutes = column(store, "SELECT at_s FROM telemetry WHERE step_s = 60 ORDER BY at_s")
        assert minutes == [row.at_s for row in rows[699:]]
        assert column(store, "SELECT count(*) FROM telemetry WHERE step_s = 3600") == [97]


def test_minute_that_comes_after_its_hour_was_deleted_leaves_the_hour(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.write(telemetry.write_minutes, [minute(BEGUN_S + 60 * n, 60.0) for n in range(9)])
        store.write(telemetry.forget, MINUTE_S, BEGUN_S + HOUR_S)
        store.write(telemetry.write_minutes, [minute(BEGUN_S, 90.0)])
        kept = column(store, "SELECT temperature_celsius_mean FROM telemetry WHERE step_s = 3600")
        assert kept == [60.0]


def test_table_has_means_and_what_slowed_the_gpu(asked: Asked) -> None:
    asked.minutes(
        minute(NOW_S - 120, 61.4, clock_sm_hertz=1.98e9, throttle_idle_ratio=1.0),
        minute(NOW_S - 60, None, gpu="GPU-2", throttle_hw_thermal_ratio=1 / 3, power_watts=0.4),
    )
    head, first, second = asked().splitlines()
    assert head.split()[:3] == ["time", "on", "temperature"]
    assert head.endswith("slowed by")
    when = datetime.fromtimestamp(NOW_S - 120)  # noqa: DTZ006  # the wall's
    assert first.lstrip().startswith(f"{when:%Y-%m-%d %H:%M}  GPU-1")
    assert "61 °C" in first
    assert "1980 MHz" in first
    assert first.endswith("idle")
    assert second.endswith("hw thermal 33 %")
    assert "°C" not in second


def test_rows_are_chosen_by_time_gpu_and_number(asked: Asked) -> None:
    asked.minutes(
        *(minute(NOW_S - 60 * n, gpu=gpu) for n in range(90) for gpu in ("GPU-1", "GPU-2"))
    )
    with opened(asked.state) as store:
        store.append(hours(1))  # GPU-1 is known by its runs
    for words, expected in (
        ((), 100),
        (("--limit", "7"), 7),
        (("--since", rfc(NOW_S - 30 * 60)), 62),
        (("--since", rfc(NOW_S - 30 * 60), "--until", rfc(NOW_S - 20 * 60)), 20),
        (("--gpu", "GPU-1"), 90),
        (("--gpu", "cpu"), 0),
    ):
        rows = asked.csv("--csv", *words)
        assert len(rows) == expected, words
        assert len(json.loads(asked("--json", *words))["rows"]) == expected
        assert rows == sorted(rows, key=lambda row: (row["time"], row["gpu_uuid"]))
    assert asked("--probe", "launch", code=2) == ""
    assert "telemetry is of a GPU, and of no probe" in asked.stderr


def test_csv_and_json_have_the_documented_columns(asked: Asked) -> None:
    asked.minutes(minute(NOW_S, 60.5))
    (row,) = asked.csv("--csv")
    assert tuple(row) == COLUMNS
    assert (row["kind"], row["n"], row["temperature_celsius_mean"]) == ("minute", "6", "60.5")
    assert row["power_watts_mean"] == ""
    document = json.loads(asked("--json"))
    assert document["schema_version"] == 1
    assert tuple(document["rows"][0]) == COLUMNS
    assert document["rows"][0]["power_watts_mean"] is None
    text = (Path(__file__).parents[3] / "docs/history.md").read_text()
    table = text.partition("## Telemetry")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z0-9_]+)` \|", table, re.MULTILINE)
    assert documented == [
        *COLUMNS[:5],
        *(f"{gauge}_mean" for gauge in GAUGES),
        "throttle_idle_ratio",
    ]


def test_hours_stand_in_for_deleted_minutes_and_that_is_said(asked: Asked) -> None:
    with opened(asked.state) as store:
        forty_days(store)
    rows = asked.csv("--csv", "--since", rfc(BEGUN_S))
    kinds = [row["kind"] for row in rows]
    first = kinds.index("minute")
    assert set(kinds[:first]) == {"hour"}
    assert set(kinds[first:]) == {"minute"}
    assert f"minutes before {rows[first]['time']} are kept as hours" in asked.stderr
    times = [float(row["unix_s"]) for row in rows]
    assert times == [times[0] + n * HOUR_S for n in range(len(times))], "each hour once"


def test_export_has_every_minute_or_every_hour_the_oldest_first(asked: Asked) -> None:
    with opened(asked.state) as store:
        forty_days(store)
    minutes = asked.csv("export")
    assert {row["kind"] for row in minutes} == {"minute"}
    assert len(minutes) == 30 * 24 + 73
    assert "--hourly" in asked.stderr
    rows = asked.csv("export", "--hourly")
    assert [row["kind"] for row in rows] == ["hour"] * (36 * 24 + 73)
    assert rows == sorted(rows, key=lambda row: row["time"])


async def test_rows_of_a_table_are_sent_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One piece of a month of two GPUs would keep the agent from everything else for a second."""
    monkeypatch.setattr(exporting, "ROWS_AT_ONCE", 2)
    with opened(tmp_path) as store:
        store.write(telemetry.write_minutes, [minute(NOW_S - 60 * n) for n in range(6)])
    lines = exporting.lines(str(tmp_path), HistoryRequest(telemetry=True, limit=5), {})
    pieces = [line async for line in lines if isinstance(line, bytes)]
    assert [piece.count(b"\n") for piece in pieces] == [2, 2, 1]
