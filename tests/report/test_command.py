"""`gpud report` as a person runs it: without an agent, with an exit code one can rely on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from gpud.agent.store import FILE, Store
from gpud.core.errors import GpudError
from gpud.report import command
from tests.report import months


def gpud(home: Path, *words: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-I", "-m", "gpud", "--home", str(home), "report", *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"},
        **how,
    )


@pytest.fixture(scope="session")
def home(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home")
    (made / "var/lib").mkdir(parents=True)
    shutil.copytree(folder, made / "var/lib/gpud")
    return made


def test_what_is_slower_now_is_1_and_stands_on_top(home: Path) -> None:
    ran = gpud(home, "--days", "3650")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.splitlines()[2].startswith("submission latency +12 %")
    assert "\x1b" not in ran.stdout


def test_the_document_has_everything_once_and_ratios_as_numbers(home: Path) -> None:
    ran = gpud(home, "--days", "3650", "--json")
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["schema_version"]) == (1, 1)
    assert [one["driver"] for one in told["stretches"]] == [months.OLD, months.NEW]
    submit = next(one for one in told["tracks"] if one["key"]["mode"] == "submit")
    assert submit["levels"][1]["slowdown"] == pytest.approx(months.SLOWER, rel=0.01)
    assert submit["unit"] == "seconds"


def test_a_page_is_written_whole_or_not_at_all(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    ran = gpud(home, "--days", "3650", "--html", str(target))
    assert (ran.returncode, str(target) in ran.stdout) == (1, True)
    assert target.read_text().endswith("</html>\n")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    nowhere = gpud(home, "--html", str(tmp_path / "no/such/place.html"))
    assert (nowhere.returncode, "cannot write" in nowhere.stderr) == (1, True)


def test_the_page_is_written_through_no_link_that_somebody_put_there(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.write_text("another's")
    (tmp_path / f".report.html.{os.getpid()}").symlink_to(other)
    with pytest.raises(GpudError, match="cannot write"):
        command.run(folder, 3650.0, html=str(tmp_path / "report.html"), as_json=False)
    assert other.read_text() == "another's"
    assert capsys.readouterr().out == ""


def test_a_page_to_stdout_is_nothing_else(home: Path) -> None:
    ran = gpud(home, "--days", "3650", "--html", "-")
    assert ran.stdout.startswith("<!DOCTYPE html>")
    assert ran.stdout.endswith("</html>\n")


def test_a_quiet_time_is_0(tmp_path: Path) -> None:
    state = tmp_path / "var/lib/gpud"
    state.mkdir(parents=True)
    Store(state, now=str).close()
    ran = gpud(tmp_path)
    assert (ran.returncode, "too little to say anything" in ran.stdout) == (0, True)


def test_without_a_history_that_is_said_and_none_is_made(tmp_path: Path) -> None:
    ran = gpud(tmp_path)
    assert (ran.returncode, "fix: gpud makes it" in ran.stderr) == (1, True)
    assert not (tmp_path / "var").exists()


@pytest.mark.parametrize("days", ["0", "-1", "many", "nan", "inf", "3651", "9" * 5000])
def test_a_number_of_days_nobody_can_mean_is_2(tmp_path: Path, days: str) -> None:
    ran = gpud(tmp_path, f"--days={days}")
    assert (ran.returncode, "--days" in ran.stderr) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")
def test_who_may_not_read_the_history_is_told_so(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gpud-report-") as name:
        Path(name).chmod(0o755)  # which pytest's own folders are not
        shutil.copy(folder / FILE, name)
        Path(name, FILE).chmod(0o640)
        pid = os.fork()
        if pid == 0:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                command.report(Path(name), 30, now_s=months.UNTIL_S)
            except PermissionError as error:  # which the command line turns into 4
                os._exit(0 if "you may not read" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_report_beside_a_writing_agent_sees_its_last_run(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(folder, state)
    month = months.Month()
    with closing(Store(state, now=str)) as store:
        store.append([month.run(months.UNTIL_S - 5, "cpu_call", None)])
        found = command.report(state, months.DAYS, now_s=months.UNTIL_S)
    assert found.stretches[-1].until_s == months.UNTIL_S - 5
