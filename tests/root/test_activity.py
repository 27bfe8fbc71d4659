"""What real processes do, as read from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from gpud.root import process
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpud.root.dockerd_facts import Activity

PROGRAM_C = """
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int n, char **argument) {
  char *mode = n > 1 ? argument[1] : "";
  if (!strcmp(mode, "spin")) for (;;) ;
  if (!strcmp(mode, "work")) while (clock() < CLOCKS_PER_SEC / 5) ;
  if (!strcmp(mode, "work")) return 0;
  if (!strcmp(mode, "disk") && vfork() == 0) for (;;) pause(); /* the parent waits in state D */
  if (!strcmp(mode, "parent")) {
    if (fork() == 0) execv(argument[2], argument + 2);
    if (!strcmp(argument[3], "work")) wait(0);
  }
  for (;;) pause();
}
"""
PTRACE_ATTACH = 16


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("activity") / "program"
    command = ["cc", "-O0", "-w", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=PROGRAM_C, text=True, check=True)
    return str(path)


@pytest.fixture
def run() -> Iterator[Callable[..., int]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> int:
        started.append(subprocess.Popen(argv, start_new_session=True))
        return started[-1].pid

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()


def reads(pid: int, state: str) -> Activity:
    until(lambda: process.stat(pid)[0] == state, f"state {state}")
    found = process.activity(pid)
    assert found is not None
    return found


def children(pid: int) -> list[int]:
    return [each for each in process.pids() if process.parent(each) == pid]


@pytest.mark.parametrize(
    ("mode", "state", "active"),
    [("sleep", "S", False), ("spin", "R", True), ("disk", "D", True)],  # waits for the disk
)
def test_process_is_active_while_it_runs_or_waits_for_the_disk(
    program: str, run: Callable[..., int], mode: str, state: str, active: object
) -> None:
    before = reads(run(program, mode), state)
    assert (before.active, before.stopped) == (active, False)


def test_process_in_a_debugger_is_active(program: str, run: Callable[..., int]) -> None:
    pid = run(program)
    assert ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_ATTACH, pid, None, None) == 0
    os.waitpid(pid, 0)
    assert reads(pid, "t").active


def test_busy_descendant_makes_its_parent_active_unless_that_is_stopped(
    program: str, run: Callable[..., int]
) -> None:
    pid = run(program, "parent", program, "parent", program, "spin")
    until(lambda: children(pid) and children(children(pid)[0]), "a grandchild")
    before = reads(pid, "S")
    assert before.active

    def grown() -> bool:
        found = process.activity(pid)
        return found is not None and found.cpu_s > before.cpu_s

    until(grown, "CPU time")
    os.kill(pid, signal.SIGSTOP)
    stopped = reads(pid, "T")
    assert not stopped.active
    assert stopped.stopped
    assert process.activity(pid) == stopped


def test_process_named_beside_it_counts(program: str, run: Callable[..., int]) -> None:
    pid, other = run(program), run(program, "spin")
    assert not reads(pid, "S").active
    found = process.activity(pid, [other])
    assert found is not None
    assert found.active


def test_time_of_a_descendant_that_ended_is_not_lost(program: str, run: Callable[..., int]) -> None:
    pid = run(program, "parent", program, "work")
    until(lambda: children(pid), "its child")
    until(lambda: not children(pid), "the end of its child")
    assert reads(pid, "S").cpu_s >= 0.19


def test_traffic_of_a_published_port_is_no_work_of_dockerd(
    program: str, run: Callable[..., int], tmp_path: Path
) -> None:
    relay = shutil.copy(program, tmp_path / "docker-proxy")
    pid = run(program, "parent", str(relay), "spin")
    until(lambda: any(process.name(each) == "docker-proxy" for each in children(pid)), "it")
    assert not reads(pid, "S").active


def test_process_that_has_ended_has_no_activity(program: str, run: Callable[..., int]) -> None:
    pid = run(program, "work")
    until(lambda: process.ref(pid) is None, "its end")
    os.waitpid(pid, 0)
    assert process.activity(pid) is None


def test_thread_that_runs_for_a_moment_is_no_work(
    program: str, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = run(program, "spin")
    reads(pid, "R")

    def stop(_: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        while process.stat(pid)[0] != "T":
            pass

    monkeypatch.setattr(time, "sleep", stop)
    found = process.activity(pid)
    assert found is not None
    assert not found.active
