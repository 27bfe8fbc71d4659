"""``gpud history`` as a person and as a program asks it, over the socket of an agent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries, retention
from gpud.agent.history.export import COLUMNS
from gpud.core.sample import Flag
from gpud.document.machine import ListedGpu
from tests import serving
from tests.events import made
from tests.histories import BEGUN_S, DAY_S, HOUR_S, Asked, done, failed, hours, opened, rfc, run

if TYPE_CHECKING:
    from collections.abc import Iterator


HOSTILE = '=HYPERLINK("http://x")\x1b[31m,\'\n'
NOW_S = time.time()


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Asked]:
    with serving.agent(tmp_path):
        yield Asked(tmp_path, capsys)


@pytest.fixture
def old(asked: Asked) -> Asked:
    """Forty days of an hourly run, of which the first are hours only by now."""
    with opened(asked.state) as store:
        store.append(hours(40 * 24))
        done(store, retention.roll_up)
        done(store, lambda open_: retention.forget_runs(open_, 30))
    return asked


def test_newest_run_is_the_last_line_with_figures_and_flags(asked: Asked) -> None:
    asked.written(
        run(NOW_S - 60, 1.5e-5, modes=("submit", "graph")),
        failed(NOW_S - 30),
        run(NOW_S, 2e-5, flags=(Flag.BUSY, Flag.LOW)),
    )
    lines = asked.table()
    assert lines[0][:3] == ["time", "on", "probe"]
    assert [line[2:6] for line in lines[1:]] == [
        ["GPU-1", "launch", "graph", "15"],
        ["GPU-1", "launch", "submit", "15"],
        ["a", "GPU", "launch", "failed:"],
        ["GPU-1", "launch", "submit", "20"],
    ]
    assert lines[-1][-3:] == ["572.16", "busy,", "low"]
    assert lines[3][-3:] == ["hung", "no", "answer"]


def test_rows_are_chosen_by_time_probe_mode_gpu_and_number(asked: Asked) -> None:
    now_s = time.time()
    asked.written(
        run(now_s - 3 * HOUR_S),
        run(now_s - HOUR_S, probe="event", modes=("pair", "record")),
        run(now_s - 60, gpu="GPU-2"),
    )
    for words, expected in (
        (("--since", "2h"), 3),
        (("--since", "2h", "--until", "30m"), 2),
        (("--since", rfc(now_s - 120)), 1),
        (("--probe", "event"), 2),
        (("--probe", "event", "--probe", "launch"), 4),
        (("--mode", "pair"), 1),
        (("--gpu", "gpu-2"), 1),
        (("--gpu", "cpu"), 0),
        (("--limit", "3"), 3),
    ):
        assert len(asked.csv(*words, "--csv")) == expected, words
        assert len(json.loads(asked(*words, "--json"))["rows"]) == expected, words


def test_gpu_may_be_named_by_the_number_that_the_agent_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = {f"GPU-{2 - n}": ListedGpu(n, "n", "b", cuda=True) for n in range(2)}
    with serving.agent(tmp_path, made("1", 0.0, gpus=gpus)):
        asked = Asked(tmp_path, capsys)
        asked.written(run(NOW_S), run(NOW_S, gpu="GPU-2"))
        assert [row["gpu_uuid"] for row in asked.csv("--gpu", "1", "--csv")] == ["GPU-1"]
        assert [line[2:4] for line in asked.table("--gpu", "1")[1:]] == [["GPU", "1"]]
        assert "there is no GPU 7\n" in refused(asked, "--gpu", "7")


def refused(asked: Asked, *words: str) -> str:
    assert asked(*words, code=2) == ""
    return asked.stderr


def test_unknown_probe_gpu_and_moment_are_refused_with_a_fix(asked: Asked) -> None:
    asked.written(run(NOW_S), run(NOW_S, probe="event"), run(NOW_S, gpu="GPU-2"))
    assert "fix: one of event, launch" in refused(asked, "--probe", "\x1b[31m")
    assert "\x1b" not in asked.stderr
    assert "fix: one of: GPU-1, GPU-2, cpu\n" in refused(asked, "--gpu", "GPU-9")
    assert "more than one GPU is meant by GPU\n" in refused(asked, "--gpu", "GPU")
    assert "write 30m, 2h, 3d" in refused(asked, "--since", "yesterday")
    assert "exchange the two" in refused(asked, "--since", "1h", "--until", "2h")


def test_limit_that_cuts_rows_off_says_so(asked: Asked) -> None:
    asked.written(*(run(NOW_S - number) for number in range(120)))
    lines = asked().splitlines()
    assert len(lines) == 1 + 100 + 1
    assert "these are the newest 100" in lines[-1]
    assert json.loads(asked("--json"))["more"] is True
    assert json.loads(asked("--since", "1h", "--json"))["more"] is False


def test_hours_stand_in_for_deleted_runs_and_stderr_says_so(old: Asked) -> None:
    rows = old.csv("--since", rfc(BEGUN_S), "--csv")
    assert [float(row["unix_s"]) for row in rows] == [BEGUN_S + n * HOUR_S for n in range(40 * 24)]
    kinds = [row["kind"] for row in rows]
    first_run = kinds.index("run")
    assert set(kinds[:first_run]) == {"hour"}
    assert set(kinds[first_run:]) == {"run"}
    assert f"runs before {rows[first_run]['time']} are kept as hours" in old.stderr
    assert {row["n"] for row in rows[:first_run]} == {"1"}
    lines = old("--since", rfc(BEGUN_S)).splitlines()
    assert lines[1].endswith("572.16  1 run")


def test_export_has_every_run_or_every_hour_the_oldest_first(old: Asked) -> None:
    runs = old.csv("export")
    assert tuple(runs[0]) == COLUMNS
    assert [float(row["unix_s"]) for row in runs] == sorted(float(r["unix_s"]) for r in runs)
    with opened(old.state) as store:
        assert len(runs) == store.read(queries.run_count)
    assert "--hourly" in old.stderr
    summed = old.csv("export", "--hourly")
    assert [float(row["unix_s"]) for row in summed] == [
        BEGUN_S + n * HOUR_S for n in range(40 * 24 - 1)
    ]
    some = old.csv(
        "export", "--hourly", "--since", rfc(BEGUN_S + DAY_S), "--until", rfc(BEGUN_S + 9 * DAY_S)
    )
    assert len(some) == 8 * 24
    some = old.csv("export", "--since", rfc(BEGUN_S + 30 * DAY_S), "--mode", "submit")
    assert len(some) == 10 * 24
    assert old("export", "--mode", "none", code=2) == ""
    assert "no mode 'none'" in old.stderr


def test_foreign_words_are_inert_in_a_table_in_csv_and_in_json(asked: Asked) -> None:
    formulas = [f"{lead}1+1" for lead in ("=", "+", "-", "@", "\t=", "\r=")]
    asked.written(
        run(NOW_S, driver_version=HOSTILE),
        failed(NOW_S, HOSTILE),
        run(NOW_S, probe="-x"),
        *(run(NOW_S, driver_version=formula) for formula in formulas),
    )
    shown = asked()
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 4 + len(formulas)
    rows = asked.csv("--csv")
    cells = [cell for row in rows for cell in row.values()]
    assert sum(cell == "'-x" for cell in cells) == 1
    versions = [row["driver_version"] for row in rows if row["driver_version"].endswith("1+1")]
    assert {version[0] for version in versions} <= set("'\\")
    assert len(versions) == len(formulas)
    assert not [c for c in cells if c[:1] in set("=+@\t\r") or "\x1b" in c or "\n" in c]
    assert json.loads(asked("--json"))["rows"][0]["time"].endswith("Z")


def test_damaged_rows_fail_no_query(asked: Asked) -> None:
    asked.written(*(run(NOW_S - number) for number in range(7)))
    with opened(asked.state) as store:
        for change in (
            "UPDATE runs SET conditions = '{half' WHERE id = 1",
            "UPDATE runs SET flags = '{}', failure = '[' WHERE id = 2",
            "UPDATE samples SET median = 'many', unit = 'feet' WHERE run_id = 3",
            "UPDATE runs SET finished_s = 9e999 WHERE id = 4",
            "UPDATE runs SET finished_s = 'noon' WHERE id = 5",
            "UPDATE runs SET finished_s = 8e15 WHERE id = 6",
        ):
            store.write(lambda open_, change=change: open_.execute(change))  # type: ignore[misc]
    assert len(asked("--since", "1h").splitlines()) == 1 + 2
    rows = json.loads(asked("--json"))["rows"]
    assert [row["time"] for row in rows].count(None) == 1
    assert len(asked.csv("export")) == 2


def test_closed_pipe_is_no_error(asked: Asked) -> None:
    asked.written(*(run(NOW_S - number) for number in range(2000)))
    command = f"{sys.executable} -m gpud --home {asked.home} history export | head -n 1"
    ran = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("time,unix_s")


def test_without_an_agent_the_exit_code_is_3_and_the_fix_starts_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(tmp_path, capsys)
    for words in ((), ("--json",), ("export",)):
        assert asked(*words, code=3) == ""
        assert asked.stderr.startswith("gpud: gpud is not running\n  fix: ")
        assert asked.stderr.endswith(f"--home {tmp_path} up\n")
    assert list(tmp_path.iterdir()) == []


def test_csv_and_json_have_the_documented_columns(asked: Asked) -> None:
    asked.written(run(NOW_S))
    document = json.loads(asked("--json"))
    assert document["schema_version"] == 1
    assert tuple(document["rows"][0]) == tuple(asked.csv("--csv")[0]) == COLUMNS
    text = (Path(__file__).parents[3] / "docs/history.md").read_text()
    table = text.partition("## The columns")[2].partition("## Telemetry")[0]
    assert tuple(re.findall(r"^\| `([a-z0-9_]+)` \|", table, re.MULTILINE)) == COLUMNS
