"""Real processes in the child's place, each misbehaving in its own way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpud.agent import children
from gpud.agent.measure import launch, served
from gpud.agent.measure.breaker import FIRST_REST_S, LONGEST_REST_S, Breaker, State
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.state.board import Board
from gpud.child.probes import peer_copy, triad
from gpud.core.sample import (
    Backend,
    Device,
    Job,
    Pace,
    ProbeSpec,
    Reason,
    RunReport,
    Skip,
    Unit,
    to_leave_free,
)
from gpud.core.sections import GateSettings
from gpud.core.settings import Settings
from tests import snapshots
from tests.waiting import LIMIT_S, until

GIB = 1 << 30

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

REPORT = json.dumps({"probe": "launch", "backend": "cuda", "conditions": {"n": 1}})
GOOD = f"print({REPORT!r})"


def spec(
    budget_s: float = 10.0, backend: Backend = Backend.CUDA, name: str = "launch"
) -> ProbeSpec:
    return ProbeSpec(name, backend, Pace.SMALL, Unit.SECONDS, ("submit",), budget_s, "s")


def launcher(folder: Path, script: str, **options: Any) -> Launcher:
    return Launcher(folder / "gpu.lock", command=(sys.executable, "-I", "-c", script), **options)


def run(folder: Path, script: str, *, backend: Backend = Backend.CUDA, **options: Any) -> RunReport:
    return asyncio.run(
        launcher(folder, script, **options).run(spec(backend=backend), Job("launch"))
    )


NEVER_ENDS = """
import sys, time
sys.stdin.readline()
print('{"devices": []}', flush=True)
time.sleep(600)
"""


async def test_child_that_listed_the_gpus_and_never_ends_is_a_hang_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "END_S", 0.1)
    made = launcher(tmp_path, NEVER_ENDS, grace_s=LIMIT_S)
    assert (await made.inventory(Job())).failure is None
    assert made.standing.state is State.OPEN
    made.close()


def all_reaped() -> bool:
    """Whether no process is left that no call awaits."""
    children.reap()
    return not children._left_behind


@pytest.mark.parametrize(
    ("trouble", "backend"),
    [
        *(("gone", backend) for backend in Backend),
        *((trouble, Backend.CUDA) for trouble in ("link", "directory", "unlockable")),
    ],
)
def test_lock_that_cannot_be_opened_is_the_reason_of_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, backend: Backend
) -> None:
    folder, lock = tmp_path / "agent", tmp_path / "agent/gpu.lock"
    if trouble != "gone":
        folder.mkdir()
    if trouble == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    if trouble == "directory":
        lock.mkdir()
    if trouble == "unlockable":  # a folder of Windows, where there is no flock

        def refused(_fd: int, _what: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refused)
    failure = run(folder, GOOD, backend=backend).failure
    assert failure is not None
    assert failure.reason is Reason.SPAWN_FAILED
    assert failure.detail.startswith(f"cannot lock {lock}: ")
    assert failure.advice


def test_child_gets_a_session_of_its_own_at_the_root_and_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "1")
    script = (
        "import json, os\nprint(json.dumps({'probe': 'launch', 'backend': 'cuda', 'conditions': {"
        "'leads': os.getsid(0) == os.getpid(), 'cwd': os.getcwd(),"
        "'names': ' '.join(sorted(n for n in os.environ if n != 'LC_CTYPE'))}}))"
    )
    assert run(tmp_path, script).conditions == {"leads": True, "cwd": "/", "names": "LANG PATH"}


OTHER = """print('{{"probe": "{}", "backend": "{}"}}')"""
STRANGE = """
print('{"probe": "launch", "backend": "cuda", "missing": [')
print('{"mode": "strange", "reason": "internal", "detail": "d"}]}')
"""


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("print('garbage')", Reason.BAD_OUTPUT, "garbage"),
        ("", Reason.BAD_OUTPUT, "no document"),
        ("print('x' * 10_000_000)", Reason.BAD_OUTPUT, "more than"),
        (f"print({REPORT[:-4]!r})", Reason.BAD_OUTPUT, "not a RunReport"),
        (f"{GOOD}\n{GOOD}", Reason.BAD_OUTPUT, "not a RunReport"),
        (OTHER.format("other", "cuda"), Reason.BAD_OUTPUT, "asked for launch"),
        (OTHER.format("launch", "cpu"), Reason.BAD_OUTPUT, "a report of 'launch' on 'cpu'"),
        (STRANGE, Reason.BAD_OUTPUT, "mode 'strange'"),
        (
            "import sys; sys.stderr.write('x\\n' * 500_000 + 'no such luck'); sys.exit(3)",
            Reason.CRASHED,
            "exit code 3 and no document: no such luck",
        ),
        ("import os; os.abort()", Reason.CRASHED, "SIGABRT"),
        ("import os; os.kill(os.getpid(), 11)", Reason.CRASHED, "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", Reason.KILLED, "SIGKILL"),
        ("import os; os.kill(os.getpid(), 15)", Reason.KILLED, "SIGTERM"),
        ("import os; os.kill(os.getpid(), 40)", Reason.KILLED, "40"),
        ("import os; os.kill(os.getpid(), 14)", Reason.HUNG, "its own alarm"),
    ],
)
def test_every_end_of_a_child_is_a_report_with_its_reason(
    tmp_path: Path, script: str, reason: Reason, words: str
) -> None:
    report = run(tmp_path, script)
    assert report.failure is not None
    assert (report.failure.reason, report.samples) == (reason, ())
    assert words in report.failure.detail


def test_cpu_probe_that_its_alarm_ends_was_slow_and_says_nothing_of_the_driver(
    tmp_path: Path,
) -> None:
    slow = launcher(tmp_path, "import os; os.kill(os.getpid(), 14)")
    report = asyncio.run(slow.run(spec(10.0, backend=Backend.CPU), Job("launch")))
    assert report.failure is not None
    assert report.failure.reason is Reason.BUDGET_EXCEEDED
    assert report.failure.detail == "not finished within 10 s; the CPU was busy"
    assert "wsl" not in str(report.failure.advice)
    assert slow.breaker == Breaker()


def test_command_that_cannot_start_is_a_report_too(tmp_path: Path) -> None:
    hung_once = Breaker(streak=1, retry_at_s=0.0)
    missing = Launcher(tmp_path / "gpu.lock", command=("/nonexistent/child",), breaker=hung_once)
    report = asyncio.run(missing.run(spec(), Job("launch")))
    assert report.failure is not None
    assert report.failure.reason is Reason.SPAWN_FAILED
    assert "/nonexistent/child" in report.failure.detail
    assert missing.breaker == hung_once, "it decides nothing"


def test_hanging_child_is_killed_once_after_the_deadline_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    script = (
        "import os, signal, time, pathlib\nsignal.signal(15, signal.SIG_IGN)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    report = asyncio.run(
        launcher(tmp_path, script, deadline_ratio=100.0).run(
            spec(0.015), Job("launch", start_limit_s=0.1)
        )
    )
    assert report.failure is not None
    assert report.failure.reason is Reason.HUNG
    assert "killed once" in report.failure.detail
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def refused(work: Coroutine[Any, Any, object]) -> Skip:
    with pytest.raises(LaunchRefused) as caught:
        await work
    return caught.value.skip


async def test_gpu_work_waits_for_the_end_of_the_grace_of_a_boot_and_the_cpu_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now_s, time=time.time)
    monkeypatch.setattr("gpud.agent.measure.launch.time", clock)
    young = launcher(tmp_path, GOOD, gpu_from_s=1060.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(young.grace(), 0.01)
    now_s = 1059.9
    assert await refused(young.run(spec(), Job("launch"))) is Skip.BOOT_GRACE
    assert await refused(young.inventory(Job())) is Skip.BOOT_GRACE
    await young.run(spec(backend=Backend.CPU), Job("launch"))
    now_s = 1060.0
    await young.grace()
    assert (await young.run(spec(), Job("launch"))).failure is None


async def test_after_a_hang_no_gpu_work_starts_until_the_rest_is_over_and_the_cpu_is_measured(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    hangs = f"json.loads(sys.stdin.readline())['gpu'] and not os.path.exists({str(mark)!r})"
    script = f"import json, os, sys\nif {hangs}: os.kill(os.getpid(), 14)\n{GOOD}"
    on_gpu = Job("launch", gpu="GPU-1")

    board = Board(snapshots.bare())
    resting = launcher(tmp_path, script, breaker=Breaker(first_rest_s=0.5), board=board)
    await resting.run(spec(), on_gpu)
    states = [resting.standing.state]
    assert resting.standing.retry_s == pytest.approx(time.time(), abs=30)
    assert await refused(resting.run(spec(), on_gpu)) is Skip.BREAKER_OPEN
    await resting.run(spec(backend=Backend.CPU), Job("launch"))
    async with asyncio.timeout(10):
        while resting.standing.state is State.OPEN:  # published when no run asks
            board.changed.clear()
            await board.changed.wait()
    states.append(resting.standing.state)
    mark.touch()
    await resting.run(spec(), on_gpu)
    states.append(resting.standing.state)
    assert states == [State.OPEN, State.HALF_OPEN, State.CLOSED]


async def test_while_a_child_of_another_process_runs_none_is_started(tmp_path: Path) -> None:
    with (tmp_path / "gpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patient = launcher(tmp_path, GOOD, patience_s=0.1)
        assert await refused(patient.run(spec(), Job("launch"))) is Skip.CHILD_RUNNING


@pytest.mark.parametrize("end", [GOOD, "os.kill(os.getpid(), 14)"], ids=["good", "hangs"])
async def test_while_half_open_one_run_decides_what_becomes_of_the_next(
    tmp_path: Path, end: str
) -> None:
    hung_once = Breaker(streak=1, retry_at_s=0.0)
    trying = launcher(tmp_path, f"import os, time; time.sleep(0.2); {end}", breaker=hung_once)

    both = (trying.run(spec(), Job("launch")) for _ in range(2))
    first, second = await asyncio.gather(*both, return_exceptions=True)
    assert isinstance(first, RunReport)
    if end == GOOD:
        assert isinstance(second, RunReport)
        assert first.failure is second.failure is None
        assert trying.breaker == Breaker()
    else:
        assert isinstance(second, LaunchRefused)
        assert second.skip is Skip.BREAKER_OPEN
        assert trying.breaker.streak == 2
    trying.close()


async def test_driver_that_lists_its_gpus_and_then_hangs_is_left_alone_for_longer(
    tmp_path: Path,
) -> None:
    listing = (
        "import json, sys\n"
        'if not json.loads(sys.stdin.readline())["probe"]: print("{}"); sys.exit()\n'
    )
    hanging = launcher(
        tmp_path,
        listing + "import os; os.kill(os.getpid(), 14)",
        breaker=Breaker(first_rest_s=0.0),
    )
    for hangs in (1, 2, 3):
        assert (await hanging.inventory(Job())).failure is None
        await hanging.run(spec(), Job("launch"))
        assert hanging.breaker.streak == hangs
    hanging.close()


async def test_cancelled_run_decides_nothing_and_kills_no_child(tmp_path: Path) -> None:
    fifo, done = tmp_path / "fifo", tmp_path / "done"
    os.mkfifo(fifo)
    os.mkfifo(done)
    hung_once = Breaker(streak=1, retry_at_s=0.0)
    script = f"open({str(fifo)!r}).read(); open({str(done)!r}, 'w').write('ended by itself')"
    sleeping = launcher(tmp_path, script, breaker=hung_once)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await sleeping.run(spec(), Job("launch"))
    assert sleeping.breaker == hung_once
    fifo.write_text("go on")
    assert done.read_text() == "ended by itself"
    await asyncio.to_thread(until, all_reaped, "the end of the child that no call awaits")


async def test_two_runs_at_once_follow_each_other(tmp_path: Path) -> None:
    script = (
        "import pathlib\n"
        f"alone = pathlib.Path({str(tmp_path)!r}, 'alone')\nalone.touch(exist_ok=False)\n"
        f"import time; time.sleep(0.1)\nalone.unlink()\n{GOOD}"
    )
    both = launcher(tmp_path, script)

    reports = await asyncio.gather(*(both.run(spec(), Job("launch")) for _ in range(3)))
    assert [report.failure for report in reports] == [None] * 3


def test_lock_lives_as_long_as_the_child_though_its_parent_was_killed(tmp_path: Path) -> None:
    """The parent is a Python of its own that is killed while its child waits for a fifo."""
    fifo, started = tmp_path / "fifo", tmp_path / "started"
    os.mkfifo(fifo)
    os.mkfifo(started)
    child = f"open({str(started)!r}, 'w').close(); open({str(fifo)!r}).read()"
    parent = (
        "import asyncio, pathlib\nfrom gpud.agent.measure.launch import Launcher\n"
        "from gpud.core.sample import *\n"
        f"lock = pathlib.Path({str(tmp_path)!r}, 'gpu.lock')\n"
        f"by = Launcher(lock, command={(sys.executable, '-I', '-c', child)!r})\n"
        "spec = ProbeSpec('p', Backend.CUDA, Pace.SMALL, Unit.SECONDS, (), 60.0, 's')\n"
        "asyncio.run(by.run(spec, Job('p')))\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", parent], cwd=root) as process:
        started.read_text()
        process.send_signal(signal.SIGKILL)
    with (tmp_path / "gpu.lock").open("r+") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fifo.write_text("go on")
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_document_larger_than_a_pipe_arrives_whole_though_a_grandchild_keeps_the_pipe_open(
    tmp_path: Path,
) -> None:
    (tmp_path / "document").write_text(f'{REPORT[:-1]}, "later": "{"x" * 200_000}"}}')
    script = (
        "import os, pathlib, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "print((folder / 'document').read_text(), flush=True)\n"
        "pid = os.fork()\n"
        "if pid == 0: time.sleep(600)\n"
        "(folder / 'pid').write_text(str(pid))\n"
        "os._exit(0)"
    )
    try:
        report = run(tmp_path, script)
    finally:
        with contextlib.suppress(OSError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert report.failure is None


@pytest.mark.parametrize(
    ("vram_free_min_bytes", "expected"),
    [(-1, (3 * GIB, 3 * GIB)), (GIB, (GIB, 0)), (0, (0, 0))],
)
def test_job_says_how_much_memory_stays_free(
    vram_free_min_bytes: int, expected: tuple[int, int]
) -> None:
    settings = Settings(gate=GateSettings(vram_free_min_bytes=vram_free_min_bytes))
    device = Device(0, "GPU-1", "RTX", "0", "8.9", 1, 1, 20 * GIB)
    peer = Device(1, "GPU-2", "RTX", "1", "8.9", 1, 1, 40 * GIB)
    job = served.job_of(settings, peer_copy.SPEC, device, peer)
    twice = tuple(2 * each if vram_free_min_bytes < 0 else each for each in expected)
    for listed, least in ((device, expected), (peer, twice)):
        assert to_leave_free(job.vram_free_min_bytes, listed.memory_total_bytes) == least
    jobs = (job, served.job_of(settings, triad.SPEC, device), served.job_of(settings, triad.SPEC))
    places = [(each.gpu, each.peer) for each in jobs]
    assert places == [("GPU-1", "GPU-2"), ("GPU-1", None), (None, None)]


def test_hangs_in_a_row_stop_gpu_work_for_five_minutes_doubling_to_an_hour() -> None:
    breaker, rests = Breaker(), []
    for _ in range(6):
        breaker = breaker.after_hang(1000.0)
        rests.append(breaker.retry_at_s - 1000.0)
        assert breaker.state(breaker.retry_at_s - 0.001) is State.OPEN
        assert breaker.state(breaker.retry_at_s) is State.HALF_OPEN
    assert rests == [300, 600, 1200, 2400, 3600, 3600]
    closed = breaker.after_end(0.0)
    assert closed.state(0.0) is State.CLOSED
    assert closed.after_hang(0.0).retry_at_s == FIRST_REST_S


def test_subject_that_hung_decides_unless_it_stays_away_for_the_longest_rest() -> None:
    opened = Breaker().after_hang(0.0, "launch")
    listed = opened.after_end(FIRST_REST_S, "inventory")
    assert listed.state(FIRST_REST_S) is State.HALF_OPEN
    again = listed.after_hang(FIRST_REST_S, "launch")
    assert again.retry_at_s == FIRST_REST_S + 2 * FIRST_REST_S
    assert again.after_end(again.retry_at_s, "launch") == Breaker()
    over_s = FIRST_REST_S + LONGEST_REST_S
    assert opened.after_end(over_s - 1, "triad").state(FIRST_REST_S) is State.HALF_OPEN
    assert opened.after_end(over_s, "triad") == Breaker()
