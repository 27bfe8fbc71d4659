"""``gpud probe`` as a person runs it: on a terminal, by an agent or without, interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from msgspec import structs

from gpud import gpu_lock, processes
from gpud.agent import platform
from gpud.agent.history.records import Run
from gpud.agent.history.store import Store
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.session import Session
from gpud.child import summary
from gpud.child.probes import cpu_matmul
from gpud.core import advice
from gpud.core.advice import Situation
from gpud.core.sample import Backend, RunReport, Skip, Unit
from gpud.core.settings import LOCK, parse
from gpud.requests import ProbeRequest, RanLine, WaitLine
from tests.e2e.driven import virtual_python
from tests.e2e.program import Program, alive, as_nobody, cuda, program
from tests.terminals import ENVIRONMENT, Window
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from gpud.core.sample import Condition
    from gpud.requests import ProbeLine

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")


@pytest.fixture
def gpud() -> Iterator[Program]:
    """A home where gpud has run since the boot, so that there is a lock."""
    with program() as made:
        made.write_settings()
        made.run_dir.mkdir(parents=True)
        (made.run_dir / LOCK).touch()
        yield made


def driver(gpud: Program, script: str = "") -> None:
    gpud.settings = {"cuda": cuda(gpud.home, script)}
    gpud.write_settings()


def probe(gpud: Program, *words: str) -> subprocess.CompletedProcess[str]:
    return gpud.cli("probe", *words)


def reported(stream: IO[str] | None, pattern: str) -> re.Match[str]:
    """Read lines until one has the pattern."""
    assert stream is not None
    observed = []
    for text in stream:
        observed.append(text)
        if results := re.search(pattern, text):
            return results
    raise AssertionError(f"no {pattern!r} in {''.join(observed)}")


def on_a_terminal(gpud: Program, *words: str, **environ: str) -> tuple[int, str]:
    """Run it on a terminal of 24 rows and 80 columns; give the exit code and all it wrote."""
    shown = Window(gpud.command("probe", *words), ENVIRONMENT | environ)
    return shown.ended(), shown.unread


def document(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    output: dict[str, Any] = json.loads(ran.stdout)
    return output


@contextlib.contextmanager
def taken_lock(gpud: Program, *, limit_s: float = 3600.0) -> Iterator[int]:
    """The agent's lock in the hands of this process, as a child of the agent has it."""
    fd = gpu_lock.open_lock(gpud.run_dir / "gpu.lock")
    assert gpu_lock.take_lock(fd)
    gpu_lock.note_holder(fd, processes.ref(os.getpid()), limit_s, "nbody on GPU-\x1b1")
    try:
        yield fd
    finally:
        os.close(fd)


def measuring(gpud: Program) -> int | None:
    """The child that has the lock and runs ``launch``."""
    with (gpud.run_dir / "gpu.lock").open("rb") as file:
        results = gpu_lock.lock_holder(file.fileno())
    return results.process.pid if results is not None and "launch" in results.what else None


def opens(pid: int, name: str) -> bool:
    """Whether a process has a file of this name open."""
    with contextlib.suppress(OSError):
        return any(path.readlink().name == name for path in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_a_terminal_shows_a_line_for_each_run_then_the_table_and_the_distribution(
    gpud: Program,
) -> None:
    driver(gpud, "launch_ns 20000\nlaunch_ns_second 80000 0.2\n")
    gpud.python = virtual_python(gpud.home / "python")
    code, screen = on_a_terminal(gpud, "launch", "--repeat", "2")
    assert code == 0
    assert "\x1b" not in screen
    shown = screen.split("\n")
    name = "launch on GPU 0, NVIDIA GeForce RTX 4070 (stand-in)"
    for repeat in (1, 2):
        begun, ended = shown[2 * repeat - 2 : 2 * repeat]
        assert begun == f"{name} ({repeat} of 2) ..."
        assert ended.startswith("  submit ")
    # No figure lies between the two modes of the distribution.
    modes = r"submit +([\d.]+) µs (\d+) %, ([\d.]+) µs (\d+) %"
    (drawn,) = filter(None, (re.search(f"launch +{modes}", text) for text in shown))
    quick_us, quick_share, slow_us, slow_share = map(float, drawn.groups())
    assert 98 <= quick_share + slow_share <= 102
    assert quick_share > 70
    assert quick_us < 30
    assert slow_us > 70
    assert any(re.search(r"≤ 22.7 µs  #+ +\d+ +\d+\.\d %$", text) for text in shown)
    assert any("2000 calls" in text for text in shown)
    # A sentence of what was left without a figure may be longer.
    assert max(len(text) for text in shown[4:] if text.startswith("  ")) <= 80
    assert on_a_terminal(gpud, "launch", LC_ALL="C")[1].isascii()


def test_in_a_pipe_there_are_lines_and_beside_a_document_nothing(gpud: Program) -> None:
    ran = probe(gpud, "cpu_matmul", "--repeat", "2")
    begun, ended, *again = ran.stderr.splitlines()
    assert (begun, again[0]) == ("cpu_matmul (1 of 2) ...", "cpu_matmul (2 of 2) ...")
    assert re.fullmatch(r"  matmul \S+ \Sflop/s", ended)
    assert "\x1b" not in ran.stdout
    assert probe(gpud, "cpu_call").stderr == "cpu_call ...\n", "the table alone has the figure"
    quiet = probe(gpud, "cpu_call", "--repeat", "2", "--json")
    assert quiet.stderr == ""
    output = document(quiet)
    assert [run["repeat"] for run in output["runs"]] == [1, 2]
    samples = [each for run in output["runs"] for each in run["samples"]]
    middle = sorted(each["median"] for each in samples if each["mode"] == "call")
    (result,) = [each for each in output["results"] if each["mode"] == "call"]
    assert result["value"] == pytest.approx(sum(middle) / 2)
    assert (result["low"], result["high"]) == (middle[0], middle[1])


def test_one_gpu_of_two_is_measured_by_its_uuid_and_the_cpu_anyway(gpud: Program) -> None:
    uuid = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000001"
    driver(gpud, f"devices 2\ndevice.1.uuid {uuid[4:]}\n")
    output = document(probe(gpud, "launch", "cpu_call", "--gpu", uuid.upper(), "--json"))
    assert [(run["probe"], run["gpu"]) for run in output["runs"]] == [
        ("cpu_call", None),
        ("launch", 1),
    ]
    assert output["runs"][1]["device"]["uuid"] == uuid


def test_a_figure_is_held_against_the_kept_history(gpud: Program) -> None:
    gpud_state = gpud.home / "var/lib/gpud"
    gpud_state.mkdir(parents=True)
    sample = summary.summarised([4e10], mode="matmul", unit=Unit.FLOPS_PER_SECOND)
    version: dict[str, Condition] = {"probe_version": cpu_matmul.SPEC.version}
    report = RunReport("cpu_matmul", Backend.CPU, None, (sample,), conditions=version)
    store = Store(gpud_state)
    store.append([Run(report, time.time() - day * 86400, "boot") for day in (*range(1, 9), 40)])
    before = {path.name: path.stat().st_mtime_ns for path in gpud_state.iterdir()}
    (result,) = document(probe(gpud, "cpu_matmul", "--json"))["results"]
    assert (result["baseline"]["median"], result["baseline"]["n"]) == (4e10, 8)
    assert result["baseline"]["ratio"] == pytest.approx(result["value"] / 4e10 - 1.0)
    assert "% (n 8)" in probe(gpud, "cpu_matmul").stdout
    assert {path.name: path.stat().st_mtime_ns for path in gpud_state.iterdir()} == before
    store.close()


def test_probe_waits_for_a_running_probe_and_names_its_process(gpud: Program) -> None:
    with taken_lock(gpud) as fd, gpud.begin("probe", "cpu_call") as process:
        words = rf"waiting for process {os.getpid()} \(nbody on GPU-\\x1b1\).*has run for \d+ s"
        reported(process.stderr, words)
        fcntl.flock(fd, fcntl.LOCK_UN)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0


def test_where_no_gpud_ran_it_says_that_it_runs_unlocked(gpud: Program) -> None:
    shutil.rmtree(gpud.run_dir)
    ran = probe(gpud, "cpu_call")
    assert ran.returncode == 0
    assert ran.stderr.startswith(
        "gpud has not run since this machine started: probes run without its lock\n"
    )
    assert not gpud.run_dir.exists()


def test_a_child_that_does_not_go_away_is_not_waited_for_and_the_cpu_is_measured(
    gpud: Program,
) -> None:
    driver(gpud)
    with taken_lock(gpud, limit_s=-10.0):
        ran = probe(gpud, "launch", "cpu_call")
    assert ran.returncode == 1
    assert re.search(r"cpu_call +call", ran.stdout)
    words = rf"not run: launch: .*process {os.getpid()} of an earlier run does not go away"
    assert re.search(words, ran.stdout)
    helps = advice.words(Situation.HUNG, advice.of(platform.facts("/")))
    assert f"fix: {helps}" in " ".join(ran.stdout.split())


def session(gpud: Program, begin: Callable[[Program], Launcher], **changes: str) -> list[ProbeLine]:
    """What a session says that runs ``launch`` once."""
    settings = parse(gpud.config.read_bytes(), {}, home=str(gpud.home))
    settings = structs.replace(settings, **changes)

    async def lines() -> list[ProbeLine]:
        launcher = begin(gpud)
        try:
            made = Session(settings, ProbeRequest(names=("launch",)), launcher)
            return [line async for line in made.lines()]
        finally:
            launcher.close()

    made = asyncio.run(lines())
    assert [line.report.failure for line in made if isinstance(line, RanLine)] == [None]
    return made


def hung(gpud: Program) -> Launcher:
    launcher = Launcher(gpud.run_dir / LOCK)
    state = launcher.breaker.after_hang(time.monotonic(), "nbody on GPU-1")
    launcher._set(state, what="nbody on GPU-1", detail="it hung")
    return launcher


def resumed(gpud: Program) -> Launcher:
    launcher = Launcher(gpud.run_dir / LOCK)
    launcher.close_to_gpu_for(3.0, Skip.RESUMED)
    return launcher


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (resumed, r"GPU work begins at .*: the machine had just come back"),
        (hung, r"the agent starts no GPU work \(open\): it hung"),
    ],
    ids=["pause", "breaker"],
)
def test_probe_says_what_it_waits_for_and_runs(
    gpud: Program, made: Callable[[Program], Launcher], waits: str
) -> None:
    driver(gpud)
    first = next(line for line in session(gpud, made) if isinstance(line, WaitLine))
    assert re.match(waits, first.message)


def test_graphs_are_left_out_without_an_agent_where_the_gpus_replay_may_hang(
    gpud: Program, tmp_path: Path
) -> None:
    driver(gpud, "device.0.cc_major 12\ndevice.0.cc_minor 0\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.8.0-45-generic\n")
    lines = session(gpud, lambda _: Launcher(None), sysroot=str(tmp_path))
    (ran,) = [line.report for line in lines if isinstance(line, RanLine)]
    assert {gap.mode: gap.reason for gap in ran.missing}["graph"] == "left_out"


@pytest.mark.parametrize(("sent", "by_agent"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_interrupted_probe_kills_no_process_and_names_what_still_runs(
    gpud: Program, sent: signal.Signals, *, by_agent: bool
) -> None:
    driver(gpud)
    if by_agent:
        gpud.settings["schedule"] = {"small_interval_s": 3600.0, "large_interval_s": 3600.0}
        gpud.start()
        gpud.status_when(lambda d: d["counters"]["runs"].get("launch"), "the first round")
    gate = gpud.home / "gate"
    os.mkfifo(gate)
    gate.chmod(0o666)
    gpud.rewrite("cuda", f"stall cuModuleLoadDataEx {gate}\n")
    with (
        gate.open("r+b", buffering=0) as opened,
        gpud.begin("probe", "cpu_call", "launch") as process,
    ):
        reported(process.stderr, "launch on GPU 0")
        child = until(lambda: measuring(gpud), "the child in the lock")
        # Before it waits in the driver it would end by itself.
        until(lambda: opens(child, "gate"), "the child in the driver's call")
        process.send_signal(sent)
        out, err = process.communicate(timeout=LIMIT_S)
        assert alive(child)
        opened.write(b"." * 100)  # one for each module
        until(lambda: not alive(child), "the end of the child by itself")
    assert process.returncode == 128 + sent
    assert re.search(r"interrupted in launch on GPU 0.*is left alone and ends by itself", err)
    assert "Traceback" not in err
    assert "another gpud probe" not in err
    assert re.search(r"cpu_call +call", out)  # what had come in is shown


def test_an_interrupted_document_says_so(gpud: Program) -> None:
    with taken_lock(gpud), gpud.begin("probe", "cpu_call", "--json") as process:
        until(lambda: opens(process.pid, "gpu.lock"), "it waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    output = json.loads(out)
    assert (output["interrupted"], output["runs"]) == (True, [])
    assert err == ""


def test_the_agent_that_runs_does_it_and_keeps_an_event_with_the_uid(gpud: Program) -> None:
    driver(gpud)
    gpud.start()
    gpud.status_when(lambda d: d["counters"]["runs"].get("launch"), "a run of the schedule")
    ran = probe(gpud, "launch", "cpu_call", "--repeat", "2")
    assert ran.returncode == 0, ran.stderr
    gpu = "launch on GPU 0, NVIDIA GeForce RTX 4070 (stand-in)"
    begun = [line.removesuffix(" ...") for line in ran.stderr.splitlines()[-8::2]]
    assert begun == [f"{name} ({n} of 2)" for name in ("cpu_call", gpu) for n in (1, 2)]
    output = document(probe(gpud, "cpu_call", "--json"))
    assert [(run["probe"], run["failure"]) for run in output["runs"]] == [("cpu_call", None)]
    (_, event) = gpud.events("probe_requested")
    assert (event["probes"], event["uid"]) == ("cpu_call", os.geteuid())
    missing = probe(gpud, "launch", "--gpu", "7")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert re.search(r"there is no GPU 7\n  fix: one of: 0 NVIDIA", missing.stderr)
    owners = {path.lstat().st_uid for path in (gpud.home / "var/lib/gpud").rglob("*")}
    assert len(owners) == 1


@needs_root
def test_a_link_in_the_locks_place_is_not_followed(gpud: Program) -> None:
    (gpud.run_dir / LOCK).unlink()
    (gpud.run_dir / LOCK).symlink_to(gpud.home / "victim")
    ran = probe(gpud, "cpu_call")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert not (gpud.home / "victim").exists()


@needs_root
def test_user_without_permission_for_the_lock_gets_exit_code_4_and_the_fix(gpud: Program) -> None:
    ran = gpud.cli("probe", "cpu_call", before=as_nobody(gpud.home))
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr == (
        f"gpud: you may not take {gpud.run_dir}/gpu.lock\n"
        "  fix: sudo usermod -aG gpud-users $USER, then open a new terminal\n"
    )
