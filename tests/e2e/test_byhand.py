"""``gpud probe`` as a person runs it: on a terminal, beside an agent, interrupted, as root."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from gpud.agent import gpulock, platform, processes
from gpud.agent.byhand.progress import Silent
from gpud.agent.byhand.session import Request, Session
from gpud.agent.eventrows import Entry
from gpud.agent.store import Run, Store
from gpud.child.probes import cpu_matmul
from gpud.core import advice, stats
from gpud.core.advice import Situation
from gpud.core.presence import GPU_SEEN
from gpud.core.sample import Backend, RunReport, Skip, Unit
from gpud.core.settings import parse
from tests.e2e.program import Program, alive, as_nobody, cuda, program
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpud.agent.byhand.outcome import Outcome
    from gpud.core.sample import Condition

NOBODY = 65534
ESCAPE = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|9)\d[;m]")
TERMINAL = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
GONE_S = 10.0

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody else needs root")


@pytest.fixture
def gpud() -> Iterator[Program]:
    """With the agent's folder, so that its lock is the one that counts."""
    with program() as made:
        made.write_settings()
        (made.run_dir / "agent").mkdir(parents=True)
        yield made


def driver(gpud: Program, script: str = "") -> None:
    gpud.settings = {"cuda": cuda(gpud.home, script)}
    gpud.write_settings()


def line(gpud: Program, *words: str) -> list[str]:
    return [sys.executable, "-I", "-m", "gpud", "--home", str(gpud.home), "probe", *words]


def probe(gpud: Program, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line(gpud, *words), capture_output=True, text=True, check=False, timeout=60, cwd="/"
    )


def begun(gpud: Program, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        line(gpud, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


def told(stream: IO[str] | None, pattern: str) -> re.Match[str]:
    """Read lines until one has the pattern."""
    assert stream is not None
    seen = []
    for text in stream:
        seen.append(text)
        if found := re.search(pattern, text):
            return found
    raise AssertionError(f"no {pattern!r} in {''.join(seen)}")


def on_a_terminal(gpud: Program, *words: str, **environ: str) -> tuple[int, str]:
    """Run it on a terminal of 24 rows and 80 columns; give the exit code and all it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name[:3] != "LC_"}
    process = subprocess.Popen(
        line(gpud, *words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd="/",
        env={**{k: v for k, v in clean.items() if k != "NO_COLOR"}, **TERMINAL, **environ},
    )
    os.close(theirs)
    written = bytearray()
    with contextlib.suppress(OSError):  # EIO: the last one has closed it
        while select.select([ours], [], [], 60.0)[0] and (chunk := os.read(ours, 65536)):
            written += chunk
    os.close(ours)
    return process.wait(timeout=60), written.decode()


def lasting(screen: str) -> list[str]:
    """The lines that stay when the bar has gone, without their colours."""
    return ESCAPE.sub("", screen.rpartition("\x1b[2K")[2]).replace("\r", "").split("\n")


def document(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


@contextlib.contextmanager
def taken_lock(gpud: Program, *, overdue_s: float = 3600.0) -> Iterator[int]:
    """The agent's lock in the hands of this process, as a child of the agent has it."""
    fd = gpulock.opened(gpud.run_dir / "agent/gpu.lock")
    assert gpulock.taken(fd)
    me = processes.ref(os.getpid())
    assert me is not None
    gpulock.note(fd, gpulock.Holder(me, time.monotonic() + overdue_s, "nbody on GPU-\x1b1"))
    try:
        yield fd
    finally:
        os.close(fd)


def measuring(gpud: Program) -> int | None:
    """The child that has the lock and runs ``launch``."""
    with (gpud.run_dir / "agent/gpu.lock").open("rb") as file:
        found = gpulock.holder(file.fileno())
    return found.process.pid if found is not None and "launch" in found.what else None


def looks(pid: int) -> bool:
    """Whether it has the lock open, which it opens anew for every look."""
    with contextlib.suppress(OSError):
        return any(
            str(path.readlink()).endswith("gpu.lock") for path in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


class Waits(Silent):
    """Silent progress that records how long each look for the lock has waited so far."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    def waiting(self, words: str, waited_s: float) -> None:  # noqa: ARG002  # the words are shown
        self.waited_s.append(waited_s)


def session(
    gpud: Program, *names: str, patience_s: float = 60.0, progress: Silent | None = None
) -> Outcome:
    """One in this process, with a patience of the test's own."""
    settings = parse(gpud.config.read_bytes(), {}, home=str(gpud.home))
    made = Session(
        settings,
        Request(names),
        progress or Silent(),
        gpud.run_dir / "agent/gpu.lock",
        patience_s=patience_s,
    )
    asyncio.run(made.run())
    return made.outcome


def test_a_terminal_shows_a_live_bar_then_the_table_and_the_histogram(gpud: Program) -> None:
    driver(gpud, "launch_ns 20000\nlaunch_ns_second 80000 0.2\n")
    code, screen = on_a_terminal(gpud, "launch", "--repeat", "2")
    assert code == 0
    shares = [int(share) for share in re.findall(r"(\d+)%", screen)]
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 100
    assert "launch on GPU 0" in screen
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is back
    stays = lasting(screen)
    # The two modes of the distribution are two lines, and no figure lies between them. How near
    # they come to 20 and 80 is a matter of the cores, and of tests/child/test_accuracy.py.
    modes = (re.match(r" +(?:launch +)?submit \((\d+) %\) +([\d.]+) µs", text) for text in stays)
    (quick_share, quick_us), (slow_share, slow_us) = (found.groups() for found in modes if found)
    assert int(quick_share) + int(slow_share) == 100
    assert int(quick_share) > 70
    assert float(quick_us) < 30
    assert float(slow_us) > 70
    assert any(re.search(r"≤ 22.7 µs  █+ +\d+ +\d+\.\d %$", text) for text in stays)
    assert any("8000 calls" in text for text in stays)
    assert max(map(len, stays)) <= 80
    assert not any("%|" in text or "━" in text for text in stays)


def test_a_dumb_terminal_gets_plain_lines_and_ascii(gpud: Program) -> None:
    driver(gpud)
    code, screen = on_a_terminal(gpud, "launch", TERM="dumb")
    assert code == 0
    assert "\x1b" not in screen
    assert screen.isascii()
    assert "launch on GPU 0, NVIDIA GeForce RTX 4070 (stand-in) ...\r\n" in screen
    assert re.search(r"<= \S+ us  #+", screen)


def test_without_utf_8_and_colour_the_bar_the_table_and_the_histogram_are_there(
    gpud: Program,
) -> None:
    driver(gpud)
    code, screen = on_a_terminal(gpud, "launch", LC_ALL="C", NO_COLOR="1")
    assert code == 0
    assert screen.isascii()
    assert not COLOUR.search(screen)
    assert "%" in screen.partition("submit")[0]
    assert re.search(r"<= \S+ us  #+", screen)


def test_a_document_on_a_terminal_is_the_last_word_after_the_bar(gpud: Program) -> None:
    code, screen = on_a_terminal(gpud, "cpu_call", "--json")
    assert code == 0
    assert json.loads("".join(lasting(screen)))["runs"][0]["probe"] == "cpu_call"


def test_in_a_pipe_there_are_lines_and_beside_a_document_nothing(gpud: Program) -> None:
    ran = probe(gpud, "cpu_matmul", "--repeat", "2")
    assert ran.stderr == "cpu_matmul (1 of 2) ...\ncpu_matmul (2 of 2) ...\n"
    assert "\x1b" not in ran.stdout
    quiet = probe(gpud, "cpu_matmul", "--repeat", "2", "--json")
    assert quiet.stderr == ""
    said = document(quiet)
    assert [run["repeat"] for run in said["runs"]] == [1, 2]
    middle = sorted(run["samples"][0]["median"] for run in said["runs"])
    (result,) = said["results"]
    assert result["value"] == pytest.approx(sum(middle) / 2)
    assert (result["low"], result["high"]) == (middle[0], middle[1])


def test_one_gpu_of_two_is_measured_by_its_uuid_and_the_cpu_anyway(gpud: Program) -> None:
    uuid = "GPU-6d0c5f2e-8a41-4b7d-9e13-000000000001"
    driver(gpud, f"devices 2\ndevice.1.uuid {uuid[4:]}\n")
    said = document(probe(gpud, "launch", "cpu_call", "--gpu", uuid.upper(), "--json"))
    assert [(run["probe"], run["gpu"]) for run in said["runs"]] == [
        ("cpu_call", None),
        ("launch", 1),
    ]
    assert said["runs"][1]["device"]["uuid"] == uuid


def test_a_gpu_that_is_not_there_is_2_with_the_list_and_nothing_is_measured(gpud: Program) -> None:
    driver(gpud, "devices 2\n")
    ran = probe(gpud, "--gpu", "7")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert re.search(r"there is no GPU 7; there are: 0 NVIDIA .+ GPU-\S+; 1 NVIDIA", ran.stderr)
    assert "cpu_call" not in ran.stderr


def test_without_cuda_there_is_one_line_and_the_figures_of_the_cpu(gpud: Program) -> None:
    ran = probe(gpud)
    assert ran.returncode == 1
    assert re.search(r"cpu_call +call", ran.stdout)
    assert re.search(r"cpu_matmul +matmul +\d", ran.stdout)
    assert len(re.findall("^failed: ", ran.stdout, re.MULTILINE)) == 1
    assert "failed: CUDA: library_missing: /nonexistent/libcuda.so.1" in ran.stdout
    assert ran.stdout.count("fix:") == 1
    assert "fix: correct [cuda] library" in ran.stdout


@pytest.mark.skipif(
    any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))), reason="this machine has a GPU"
)
def test_a_machine_that_never_had_a_gpu_is_well(gpud: Program, tmp_path: Path) -> None:
    gpud.settings = {"cuda": {}, "nvml": {}}
    gpud.sysroot = str(tmp_path)
    gpud.write_settings()
    ran = probe(gpud)
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"cpu_call +call", ran.stdout)
    assert ran.stdout.count("no GPU was measured: this machine has no NVIDIA GPU\n") == 1
    assert "failed" not in ran.stdout
    assert probe(gpud, "launch").returncode == 1, "nothing of it was measured"
    history = gpud.home / "var/lib/gpud"
    history.mkdir(parents=True)
    store = Store(history, now=str)
    store.append_events([Entry(1.0, GPU_SEEN, {"uuid": "GPU-a", "name": "card"})])
    store.close()
    gone = probe(gpud)
    assert (gone.returncode, "failed: CUDA: library_missing" in gone.stdout) == (1, True)


def test_a_driver_that_crashes_is_a_line_below_the_figures(gpud: Program) -> None:
    driver(gpud, "crash cuLaunchKernel\n")
    ran = probe(gpud, "launch", "cpu_call")
    assert ran.returncode == 1
    table, _, below = ran.stdout.partition("\n\n")
    assert "cpu_call" in table
    assert "failed: launch on GPU 0: crashed: ended by SIGABRT" in below


def test_a_figure_is_held_against_the_kept_history(gpud: Program) -> None:
    gpud_state = gpud.home / "var/lib/gpud"
    gpud_state.mkdir(parents=True)
    sample = stats.summarised([4e10], mode="matmul", unit=Unit.FLOPS_PER_SECOND)
    version: dict[str, Condition] = {"probe_version": cpu_matmul.SPEC.version}
    report = RunReport("cpu_matmul", Backend.CPU, None, (sample,), conditions=version)
    store = Store(gpud_state, now=str)
    store.append([Run(report, time.time() - day * 86400, "boot") for day in (1, 2, 3, 4, 5, 40)])
    before = {path.name: path.stat().st_mtime_ns for path in gpud_state.iterdir()}
    (result,) = document(probe(gpud, "cpu_matmul", "--json"))["results"]
    assert (result["baseline"]["median"], result["baseline"]["n"]) == (4e10, 5)
    assert result["baseline"]["ratio"] == pytest.approx(result["value"] / 4e10 - 1.0)
    assert "% (n 5)" in probe(gpud, "cpu_matmul").stdout
    assert {path.name: path.stat().st_mtime_ns for path in gpud_state.iterdir()} == before
    store.close()


def test_it_waits_for_a_probe_that_runs_and_says_whose_it_is(gpud: Program) -> None:
    with taken_lock(gpud) as fd, begun(gpud, "cpu_call") as process:
        words = rf"waiting for process {os.getpid()} \(nbody on GPU-\\x1b1\).*has run for \d+ s"
        told(process.stderr, words)
        fcntl.flock(fd, fcntl.LOCK_UN)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_its_patience_ends_once_and_then_nothing_is_waited_for(gpud: Program) -> None:
    with taken_lock(gpud):
        waits = Waits()
        made = session(gpud, "cpu_call", "cpu_matmul", patience_s=0.5, progress=waits)
    assert waits.waited_s
    assert waits.waited_s == sorted(waits.waited_s)  # a second wait begins at 0 again
    assert made.runs == []
    assert [(missed.probe, missed.skip) for missed in made.not_run] == [
        ("cpu_call", Skip.CHILD_RUNNING),
        ("cpu_matmul", Skip.CHILD_RUNNING),
    ]
    assert f"waited 0.5 s for process {os.getpid()}" in made.not_run[0].detail
    assert not made.good


def test_a_child_that_does_not_go_away_is_not_waited_for_and_the_cpu_is_measured(
    gpud: Program,
) -> None:
    driver(gpud)
    with taken_lock(gpud, overdue_s=-1.0):
        ran = probe(gpud, "launch", "cpu_call")
    assert ran.returncode == 1
    assert re.search(r"cpu_call +call", ran.stdout)
    words = rf"not run: launch: .*process {os.getpid()} of an earlier run does not go away"
    assert re.search(words, ran.stdout)
    helps = advice.words(Situation.HUNG, advice.of(platform.facts("/")))
    assert f"fix: {helps}" in " ".join(ran.stdout.split())


def test_an_open_breaker_of_the_agent_is_told(gpud: Program) -> None:
    standing = {"state": "open", "detail": "it hung", "retry_s": None, "fix": "wsl --shutdown"}
    said = {"written_s": time.time(), "breaker": standing}
    (gpud.run_dir / "agent/agent.json").write_text(json.dumps(said))
    ran = probe(gpud, "launch")
    assert ran.stderr == "the agent starts no GPU work (open): it hung\n  fix: wsl --shutdown\n"
    assert probe(gpud, "cpu_call").stderr == "cpu_call ...\n"  # that is no GPU work


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_interrupted_it_kills_nobody_and_says_what_still_runs(
    gpud: Program, number: signal.Signals, code: int
) -> None:
    driver(gpud, "module_load_ns 1500000000\n")
    with begun(gpud, "cpu_call", "launch") as process:
        told(process.stderr, "launch on GPU 0")
        child = until(lambda: measuring(gpud), "the child in the lock")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        still = alive(child)
    assert process.returncode == code
    assert still
    assert re.search(rf"interrupted in launch on GPU 0.*process {child} .*ends by itself", err)
    assert "Traceback" not in err
    assert "another gpud probe" not in err
    assert re.search(r"cpu_call +call", out)  # what had come in is shown
    until(lambda: not alive(child), "the end of the child by itself", GONE_S)


def test_an_interrupted_document_says_so(gpud: Program) -> None:
    with taken_lock(gpud), begun(gpud, "cpu_call", "--json") as process:
        until(lambda: looks(process.pid), "it waits")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    said = json.loads(out)
    assert (said["interrupted"], said["runs"]) == (True, [])
    assert err == "gpud: interrupted; nothing was running\n"  # what it waited for is not its own


@needs_root
def test_as_root_it_becomes_the_agents_user_and_leaves_nothing_of_roots(gpud: Program) -> None:
    driver(gpud)
    own, state = gpud.run_dir / "agent", gpud.home / "var/lib/gpud"
    state.mkdir(parents=True)
    for folder in (own, state):
        os.chown(folder, NOBODY, NOBODY)
    before = set(gpud.home.rglob("*"))
    ran = probe(gpud, "launch", "cpu_call")
    assert ran.returncode == 0, ran.stderr
    made = set(gpud.home.rglob("*")) - before
    assert made == {own / "gpu.lock"}
    assert all(path.lstat().st_uid == NOBODY for path in made)


@needs_root
def test_a_link_in_the_locks_place_is_not_followed(gpud: Program) -> None:
    own = gpud.run_dir / "agent"
    (own / "gpu.lock").symlink_to(gpud.home / "victim")
    for owner in (0, NOBODY):
        os.chown(own, owner, owner)
        ran = probe(gpud, "cpu_call")
        assert ran.returncode == 1
        assert "Traceback" not in ran.stderr
    assert not (gpud.home / "victim").exists()


@needs_root
def test_somebody_else_on_an_installed_gpud_is_4_with_the_fix(gpud: Program) -> None:
    ran = subprocess.run(
        [*as_nobody(gpud.home), *line(gpud, "cpu_call")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "that gpud's agent runs as\n" in ran.stderr
    assert ran.stderr.endswith(f"/gpud --home {gpud.home} probe cpu_call\n")


def test_a_full_disk_and_a_reader_that_leaves_are_no_crash(gpud: Program) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            line(gpud, "cpu_call"), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 1
    assert ran.stderr.endswith("gpud: cannot write the result: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        line(gpud, "cpu_call", "--json"), stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (0, b"")
