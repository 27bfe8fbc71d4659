"""A child that hangs on WSL2: it gets no signal, whatever happens, and its end is awaited."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpud import discovery, processes
from gpud.agent import children
from gpud.agent.measure.breaker import State
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.state.board import Board
from gpud.child import probes
from gpud.child.probes import cpu_call, event
from gpud.core.sample import Job, Reason, Skip
from tests import snapshots
from tests.agent.leaping import Clock
from tests.child.running import CHILD, GPU, gpus_of
from tests.child.sweep import CALLED, INVENTORY, SHARED, Subject, Sweep, devices, linked, sweeping
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpud.core.sample import ProbeSpec, RunReport

NEVER_S = 600.0
AT_ONCE = 10


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("gpud.agent.measure.launch.time", made)
    return made


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with sweeping(tmp_path_factory.mktemp("left")) as made:
        yield made


class Hung:
    """A launcher of a WSL2 machine whose driver does not return from one function until told to."""

    def __init__(self, function: str, subject: Subject, sweep: Sweep, place: Path) -> None:
        self.function, self.subject = function, subject
        self.fifo = place.with_suffix(".fifo")
        os.mkfifo(self.fifo)
        self._calls = place / "calls"
        script = f"{devices(subject)}log {self._calls}\nstall {function} {self.fifo}\n"
        self.library = linked(sweep.library(subject), place, script)
        self._traces = place
        # Detached: the child is what the launcher knows, and its tracer a process beside it.
        strace = ["strace", "-D", "-qq", "-ff", "--seccomp-bpf", "-e", "trace=setitimer"]
        self._command = [*strace, "-o", str(place / "trace"), *CHILD]
        self.board = Board(snapshots.bare())
        self.launcher = self.another()

    def another(self) -> Launcher:
        """A launcher as an agent that is started now has it."""
        lock = self.library.with_name("gpu.lock")
        return Launcher(
            lock, board=self.board, command=self._command, patience_s=20.0, leave_hung=True
        )

    async def run(self) -> RunReport | None:
        """Do what comes to the function; None for the list of GPUs, which must have failed."""
        job = Job(
            **gpus_of(self.subject.name),
            cuda_library=str(self.library),
            budget_s=NEVER_S,
            start_limit_s=NEVER_S,
        )
        if self.subject.name == INVENTORY:
            failure = (await self.launcher.inventory(replace(job, gpu=None))).failure
            assert failure is None or failure.reason is Reason.HUNG
            return None
        module = discovery.module(probes, self.subject.name, ("SPEC", "run"))
        assert not isinstance(module, str)
        spec: ProbeSpec = replace(module.SPEC, budget_s=NEVER_S)
        return await self.launcher.run(spec, replace(job, probe=spec.name))

    async def hangs(self) -> None:
        """Wait until the child is in the function."""

        def called() -> bool:
            return self._calls.exists() and self.function in self._calls.read_text().split()

        await asyncio.to_thread(until, called, f"{self.function} of {self.subject}")

    @property
    def left(self) -> int:
        """The process that is left alone."""
        left = self.launcher.breaker.left
        assert left is not None, self.function
        assert processes.ref(left.pid) == left
        return left.pid

    @contextlib.contextmanager
    def answered(self) -> Iterator[None]:
        """Let the driver return, from now on at once."""
        with self.fifo.open("r+b", buffering=0) as file:
            file.write(bytes(60_000))
            yield

    async def becomes(self, state: State) -> None:
        async with asyncio.timeout(60):
            while self.launcher.standing.state is not state:
                self.board.changed.clear()
                await self.board.changed.wait()

    def signals(self) -> list[str]:
        """What reached the children, as their tracers saw it; only the CPU's own has an alarm."""
        traces = [trace.read_text() for trace in self._traces.glob("trace.*")]
        lines = [line for trace in traces for line in trace.splitlines()]
        signals = [line for line in lines if "--- SIG" in line or "killed by" in line]
        assert sum("setitimer" in trace for trace in traces) <= 1, "that of the CPU's alone"
        return signals


async def refuses(hung: Hung) -> None:
    with pytest.raises(LaunchRefused) as refused:
        await hung.launcher.run(event.SPEC, Job("event", gpu=GPU))
    assert refused.value.skip is Skip.STUCK, hung.function


async def meets(hung: Hung) -> None:
    """After its deadline the child of a hang is left, told, watched, and no second one started."""
    await refuses(hung)
    assert hung.launcher.standing.state is State.STUCK
    detail = hung.launcher.standing.detail or ""
    assert f"gpud's probe (process {hung.left}, state " in detail
    assert detail.endswith("is left alone, because killing it can take the GPU of all of WSL away")
    reference = await hung.launcher.run(cpu_call.SPEC, Job("cpu_call"))
    assert reference.failure is None
    assert hung.signals() == [], hung.function


async def recovers(hung: Hung) -> None:
    """The end of the process is the news that the driver came back."""
    with hung.answered():
        await hung.becomes(State.HALF_OPEN)
        report = await hung.run()
        assert report is None or report.failure is None, (hung.function, report)
    assert hung.launcher.standing.state is State.CLOSED
    hung.launcher.close()


@pytest.mark.parametrize("each", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_hang_at_any_call_sends_no_signal_and_is_over_when_the_process_ends(
    sweep: Sweep, tmp_path: Path, clock: Clock, each: int
) -> None:
    functions = list(enumerate(CALLED[::each]))

    async def story(part: list[tuple[int, str]]) -> None:
        cases = [
            Hung(function, sweep.prober(function), sweep, tmp_path / str(number))
            for number, function in part
        ]
        runs = [asyncio.create_task(hung.run()) for hung in cases]
        await asyncio.gather(*(hung.hangs() for hung in cases))
        clock.leap()
        for hung, report in zip(cases, await asyncio.gather(*runs), strict=True):
            if report is not None and hung.function not in SHARED:
                failure = report.failure
                assert failure is None or failure.reason is Reason.HUNG, (hung.function, failure)
                assert "release_errors" in report.conditions or failure is not None
            await meets(hung)
        await asyncio.gather(*map(recovers, cases))
        assert [line for hung in cases for line in hung.signals()] == []

    for first in range(0, len(functions), AT_ONCE):
        clock.run(story(functions[first : first + AT_ONCE]))


def test_agent_that_is_started_anew_waits_for_the_child_that_the_old_one_left(
    sweep: Sweep, tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        hung = Hung("cuInit", Subject("event"), sweep, tmp_path / "one")
        run = asyncio.create_task(hung.run())
        await hung.hangs()
        clock.leap()
        await run
        left = hung.left
        hung.launcher.close()
        hung.launcher = hung.another()
        hung.launcher.look()
        assert hung.left == left
        await refuses(hung)
        assert hung.signals() == []
        await recovers(hung)

    clock.run(story())


def test_agent_that_stops_leaves_the_child_in_the_driver(
    sweep: Sweep, tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        hung = Hung("cuInit", Subject("event"), sweep, tmp_path / "one")
        run = asyncio.create_task(hung.run())
        await hung.hangs()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        hung.launcher.close()
        assert hung.signals() == []
        pid = int(hung.library.with_name("gpu.lock").read_text().split()[0])
        gone = asyncio.Event()
        process = processes.ref(pid)
        assert process is not None
        watch = children.Watch(process, gone.set)
        with hung.answered():
            await asyncio.wait_for(gone.wait(), LIMIT_S)
        watch.close()

    clock.run(story())


async def test_child_that_measures_the_cpu_is_killed_there_too(tmp_path: Path) -> None:
    script = "import signal, sys\nsys.stdin.readline()\nsignal.pause()"
    launcher = Launcher(
        tmp_path / "gpu.lock",
        command=("python3", "-I", "-c", script),
        leave_hung=True,
        deadline_ratio=0.1,
    )
    report = await launcher.run(cpu_call.SPEC, Job("cpu_call", budget_s=1.0))
    assert report.failure is not None
    assert report.failure.detail.endswith("; the CPU was busy")
    assert launcher.standing.state is State.CLOSED
