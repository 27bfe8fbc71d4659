"""The history beside the agent that writes it: read, and otherwise left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpud.agent.history import queries, reader
from gpud.agent.history.queries import Series, Usual
from gpud.agent.history.records import Run
from gpud.agent.history.schema import FILE
from gpud.core import stats
from gpud.core.errors import StoreError
from gpud.core.sample import Backend, Device, Failure, Flag, Peak, Reason, RunReport, Unit
from tests.histories import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DEVICE = Device(0, "GPU-1", "n", "0000:01:00.0", "8.9", 46, 1, 1)
SUBMIT = Series("GPU-1", "launch", "submit", 1)
COMING_AND_GOING = """
import pathlib, select, sys
from gpud.agent.history.records import Run
from gpud.agent.history.store import Store
from gpud.core import stats
from gpud.core.sample import *
device = Device(0, "GPU-1", "n", "0000:01:00.0", "8.9", 46, 1, 1)
sample = stats.summarised([1e-6], mode="submit", unit=Unit.SECONDS)
report = RunReport("launch", Backend.CUDA, device, (sample,), conditions={"probe_version": 1})
number = -1
while not select.select([sys.stdin], [], [], 0)[0]:  # until that is closed
    number += 1
    store = Store(pathlib.Path(sys.argv[1]))
    store.append([Run(report, float(number), "b")])
    store.close()
    if number == 0:
        print("begun", flush=True)
print(number + 1)
"""
LOOKS, AGENTS = 20, 20

needs_another_user = pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody needs root")


def run(figure: float, *, finished_s: float = 1.0, version: int = 1, uuid: str = "GPU-1") -> Run:
    sample = stats.summarised([figure], mode="submit", unit=Unit.SECONDS)
    report = RunReport(
        "launch",
        Backend.CUDA,
        replace(DEVICE, uuid=uuid),
        (sample,),
        conditions={"probe_version": version},
        duration_s=figure,
    )
    return Run(report, finished_s, "boot")


def with_report(run: Run, **changes: object) -> Run:
    return replace(run, report=replace(run.report, **changes))  # type: ignore[arg-type]


def written(folder: Path, *runs: Run) -> None:
    with opened(folder) as store:
        assert store.append(list(runs)) == []


def past(folder: Path, probes: list[str], *, since_s: float) -> Usual:
    return reader.read(folder, queries.usual, probes, since_s)


def submits(folder: Path, since_s: float = 0.0) -> tuple[float, ...]:
    return past(folder, ["launch"], since_s=since_s).medians.get(SUBMIT, ())


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """Everything of each file that a reader could have changed."""
    found = {path.name: path.stat() for path in folder.iterdir()}
    return {
        name: (at.st_ino, at.st_uid, at.st_gid, at.st_mode, at.st_size, at.st_mtime_ns)
        for name, at in found.items()
    }


def copied_as_after_a_kill(folder: Path, target: Path) -> Path:
    """What a SIGKILL leaves: all three files, and nobody who has them open."""
    shutil.copytree(folder, target)
    return target


def refusal(folder: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        past(folder, ["launch"], since_s=0.0)
    return caught.value


def test_a_closed_history_is_read_and_no_file_is_made_or_changed(tmp_path: Path) -> None:
    written(tmp_path, run(1.0), run(2.0))
    before = state(tmp_path)
    assert set(before) == {FILE}
    assert submits(tmp_path) == (1.0, 2.0)
    assert state(tmp_path) == before


def test_an_open_history_is_read_to_its_last_run_and_not_changed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.append([run(1.0)])
        store.append([run(2.0)])
        before = state(tmp_path)
        assert set(before) == {FILE, f"{FILE}-wal", f"{FILE}-shm"}
        assert submits(tmp_path) == (1.0, 2.0)
        assert state(tmp_path) == before
        store.append([run(3.0)])
        assert submits(tmp_path) == (1.0, 2.0, 3.0)


def test_what_a_killed_agent_left_is_read_with_the_runs_of_its_wal(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with opened(tmp_path / "live") as store:
        store.append([run(1.0)])
        left = copied_as_after_a_kill(tmp_path / "live", tmp_path / "left")
    before = state(left)
    assert (left / f"{FILE}-wal").stat().st_size > 0
    assert submits(left) == (1.0,)
    assert state(left) == before
    written(left, run(2.0))  # the next agent is not held up by anything
    assert submits(left) == (1.0, 2.0)


def test_a_wal_without_its_index_is_a_reason_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    with opened(tmp_path / "live") as store:
        store.append([run(1.0)])
        left = copied_as_after_a_kill(tmp_path / "live", tmp_path / "left")
    (left / f"{FILE}-shm").unlink()
    before = state(left)
    assert refusal(left).reason == "left_behind"
    assert state(left) == before


def test_an_empty_wal_hides_nothing(tmp_path: Path) -> None:
    written(tmp_path, run(1.0))
    (tmp_path / f"{FILE}-wal").touch()
    assert submits(tmp_path) == (1.0,)


def test_while_agents_come_and_go_no_look_fails_or_sees_less_than_the_one_before(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMING_AND_GOING, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        seen = looks = 0
        while looks < LOOKS or seen < AGENTS:  # whichever of the two is the slower one today
            now = len(submits(tmp_path))
            assert now >= seen
            seen, looks = now, looks + 1
        writer.stdin.close()
        written_runs = int(writer.stdout.readline())
    assert writer.returncode == 0
    assert len(submits(tmp_path)) == written_runs >= AGENTS
    written(tmp_path, run(1.0))  # whichever files the last one could not take away: the next can
    assert {path.name for path in tmp_path.iterdir()} == {FILE}


def test_only_runs_that_compare_are_together(tmp_path: Path) -> None:
    double = run(8.0)
    (sample,) = double.report.samples
    peaks = (Peak(1.0, 0.5), Peak(5.0, 0.5))  # a median between them compares with nothing
    written(
        tmp_path,
        run(1.0),
        run(2.0, uuid="GPU-2"),
        run(3.0, version=2),
        run(4.0, finished_s=-50.0),
        replace(run(5.0), flags=(Flag.BUSY,)),
        replace(run(6.0), flags=(Flag.COLD, Flag.LOW)),
        with_report(run(7.0), samples=(), failure=Failure(Reason.HUNG, "no answer")),
        with_report(double, samples=(replace(sample, peaks=peaks),)),
        with_report(run(9.0), probe="nbody"),
    )
    found = past(tmp_path, ["launch", "triad"], since_s=0.0)
    assert found.medians == {
        SUBMIT: (1.0,),
        SUBMIT._replace(gpu="GPU-2"): (2.0,),
        SUBMIT._replace(version=2): (3.0,),
    }


def test_how_long_a_run_takes_is_the_median_of_the_newest_five(tmp_path: Path) -> None:
    lately = [run(float(number), finished_s=100.0 + number) for number in range(5)]
    written(tmp_path, *(run(50.0, finished_s=float(n)) for n in range(20)), *lately)
    cpu = with_report(run(7.0), device=None, backend=Backend.CPU, probe="cpu_call")
    written(tmp_path, cpu)
    found = past(tmp_path, ["launch", "cpu_call"], since_s=0.0)
    assert found.durations == {("GPU-1", "launch"): 2.0, (None, "cpu_call"): 7.0}


def test_what_is_not_what_it_should_be_is_passed_over(tmp_path: Path) -> None:
    written(tmp_path, run(1.0), run(2.0), run(3.0))
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE samples SET median = 9e999 WHERE run_id = 1")
        connection.execute("UPDATE samples SET median = 'many' WHERE run_id = 2")
        connection.execute("UPDATE runs SET duration_s = 9e999 WHERE id = 3")
        connection.commit()
    found = past(tmp_path, ["launch"], since_s=0.0)
    assert found.medians == {SUBMIT: (3.0,)}
    assert found.durations == {("GPU-1", "launch"): 1.5}


def test_no_file_is_no_history_yet(tmp_path: Path) -> None:
    assert refusal(tmp_path).reason == "no_history"
    assert refusal(tmp_path / "missing").reason == "no_history"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_newer_gpud_is_not_guessed_at(tmp_path: Path) -> None:
    written(tmp_path, run(1.0))
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA user_version = 999")
    said = refusal(tmp_path)
    assert said.reason == "newer_schema"
    assert "newer gpud (schema 999" in str(said)


@pytest.mark.parametrize("damage", ["not a database", "pages overwritten"])
def test_a_damaged_file_is_a_reason_and_is_set_aside_by_the_agent_alone(
    tmp_path: Path, damage: str
) -> None:
    if damage == "not a database":
        (tmp_path / FILE).write_bytes(b"this was never a database" * 500)
    else:
        written(tmp_path, *(run(float(number)) for number in range(500)))
        with (tmp_path / FILE).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096 * 12)
    before = state(tmp_path)
    assert refusal(tmp_path).reason == "corrupt"
    assert state(tmp_path) == before


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    assert refusal(tmp_path).reason == "not_a_file"
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("/dev/zero")
    assert refusal(tmp_path).reason == "not_a_file"


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that every user reaches, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="gpud-history-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_another_user
@pytest.mark.parametrize("opened_by_the_agent", [True, False])
def test_another_user_who_may_not_read_is_told_so_and_leaves_nothing(
    passable: Path,
    opened_by_the_agent: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    with opened(passable) as store:
        store.append([run(1.0)])
        if not opened_by_the_agent:
            store.close()
        for path in passable.iterdir():
            path.chmod(0o640)
        before = state(passable)
        pid = os.fork()
        if pid == 0:
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                os._exit(0 if refusal(passable).reason == "not_permitted" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert state(passable) == before
