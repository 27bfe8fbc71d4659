"""``gpud history --chart``: the series of a real history, drawn for a terminal and for a pipe."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud.agent import rolluprows
from gpud.agent.store import Store
from gpud.core.sample import Flag
from gpud.term import chart
from tests.histories import done, run
from tests.term.windows import ENVIRONMENT, gpud, window

if TYPE_CHECKING:
    from pathlib import Path

    from gpud.agent.store import Run

NOW_S = time.time()


def hours_ago(hours: float, figure: float, driver: str, **more: object) -> Run:
    return run(NOW_S - 3600 * hours, figure, driver_version=driver, **more)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    runs = [hours_ago(48 - n / 4, 1e-5, "566.36") for n in range(80)]
    runs += [hours_ago(24 - n / 4, 1.5e-5, "572.16") for n in range(90)]
    runs.append(hours_ago(1, 1.0, "572.16", flags=(Flag.BUSY,)))
    evil = hours_ago(0.5, 2e-6, "572.16", probe="event", modes=("record",))
    report = replace(evil.report, conditions={"driver_version": "\x1b[2J", "probe_version": 1})
    runs.append(replace(evil, report=report))
    state = tmp_path / "var/lib/gpud"
    state.mkdir(parents=True)
    with closing(Store(state, now=str)) as store:
        store.append(runs)
    return tmp_path


def drawn(home: Path, *words: str, code: int = 0, **environ: str) -> str:
    done = subprocess.run(
        gpud(home, "history", "--chart", *words),
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | environ,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    return done.stdout + done.stderr


def test_a_series_has_its_figures_its_axis_and_the_change_of_its_driver(home: Path) -> None:
    shown = drawn(home, "--probe", "launch", "--mode", "submit", "--since", "3d")
    lines = shown.splitlines()
    assert lines[0] == "submission latency (launch submit) on GPU-1"
    assert lines[1] == "  170 points, median 15 µs, least 10 µs, most 15 µs, 1 marked, not drawn"
    assert sum("µs ┤" in line for line in lines) == 3
    assert sum("│" in line for line in lines) > 3
    (changed,) = [line for line in lines if "driver" in line]
    assert changed.strip().startswith("| 20")
    assert changed.endswith(" driver 566.36 -> 572.16")
    assert "  " in next(line for line in lines if "───" in line).strip()  # four hours without a run


def test_more_than_two_days_are_drawn_of_hours_and_the_runs_after_them(tmp_path: Path) -> None:
    state = tmp_path / "var/lib/gpud"
    state.mkdir(parents=True)
    now_s = time.time()
    runs = [run(now_s - 600 * n, 3e-5 if n == 700 else 1e-5) for n in range(1, 6 * 24 * 6)]
    with closing(Store(state, now=str)) as store:
        store.append(runs)
        before = drawn(tmp_path, "--mode", "submit", "--since", "5d").splitlines()
        done(store, rolluprows.roll_up)
    after = drawn(tmp_path, "--mode", "submit", "--since", "5d").splitlines()
    raw, hourly = (int(lines[1].split()[0]) for lines in (before, after))
    assert raw == 5 * 24 * 6 - 1, "the first is older by now"
    assert 5 * 24 - 1 <= hourly <= 5 * 24 + 2 * 6
    assert "most 30 µs" in after[1], "a spike is never thinned out"
    axis = [next(row for row in lines if row.strip().startswith("20")) for lines in (before, after)]
    assert axis[0].split()[0] == axis[1].split()[0], "and the same days"


def test_every_series_is_drawn_where_none_is_named_and_nothing_steers_the_terminal(
    home: Path,
) -> None:
    shown = drawn(home)
    assert "submission latency (launch submit) on GPU-1" in shown
    assert "recording an event (event record) on GPU-1" in shown
    assert "\x1b" not in shown


def test_a_young_history_fills_its_chart_unless_a_time_is_asked_for(home: Path) -> None:
    young = home / "young"
    state = young / "var/lib/gpud"
    state.mkdir(parents=True)
    with closing(Store(state, now=str)) as store:
        store.append([run(time.time() - 1200 + 60 * n, 1e-5) for n in range(20)])

    def covered(*words: str) -> float:
        lines = drawn(young, "--probe", "launch", "--mode", "submit", *words).splitlines()
        (axis,) = [line.strip() for line in lines if "───" in line or line.strip() == "─"]
        return len(axis) / 89

    assert covered() > 0.8
    assert covered("--since", "2d") < 0.05


def test_a_chart_that_ends_weeks_ago_is_of_the_week_before_its_end(tmp_path: Path) -> None:
    state = tmp_path / "var/lib/gpud"
    state.mkdir(parents=True)
    with closing(Store(state, now=str)) as store:
        store.append([hours_ago(24 * days, 1e-5, "566.36") for days in (40, 33, 32, 31, 1)])
    shown = drawn(tmp_path, "--until", "30d")
    assert "3 points" in shown
    assert "later than --until" not in shown


@pytest.mark.parametrize(
    ("first_s", "begins_s"), [((100.0, 700.0), 100.0), ((950.0,), 400.0), ((), 0.0)]
)
def test_all_charts_begin_with_the_oldest_run(first_s: tuple[float, ...], begins_s: float) -> None:
    courses = [chart.Course(points=[(at_s, 1.0), (999.0, 1.0)]) for at_s in first_s]
    assert chart.begin(courses, 0.0, 1000.0) == begins_s


def test_without_utf_8_it_is_ascii(home: Path) -> None:
    shown = drawn(home, "--probe", "launch", LC_ALL="C")
    assert shown.isascii()
    assert "*" in shown


def test_a_window_is_not_left_and_colours_can_be_had(home: Path) -> None:
    with window(gpud(home, "history", "--chart", "--probe", "launch"), columns=60) as shown:
        assert shown.ended() == 0
        assert "\x1b[1m" in shown.everything
        rows = [row for row in shown.everything.split("\r\n") if "┤" in row]
        assert 0 < max(map(len, rows)) <= 60


def test_where_there_is_nothing_it_says_so_and_a_wrong_name_is_2(home: Path) -> None:
    assert "nothing was measured then" in drawn(home, "--since", "1m")
    assert "the history has no probe 'lunch'" in drawn(home, "--probe", "lunch", code=2)
    assert "not allowed with" in drawn(home, "--csv", code=2)
