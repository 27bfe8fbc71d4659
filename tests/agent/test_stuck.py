"""A child that the kernel does not let go: state D, by a file system that never answers."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpud import processes
from gpud.agent import children
from gpud.agent.measure.breaker import State
from gpud.agent.measure.launch import Launcher, LaunchRefused
from gpud.agent.state.board import Board
from gpud.child.probes import cpu_call, launch
from gpud.core.health import Level
from gpud.core.sample import Job, Reason, Skip
from tests import snapshots
from tests.agent.leaping import Clock
from tests.agent.serve.metrics.scraping import scrape
from tests.child.running import GPU
from tests.fuse import Stalling, stalling, usable
from tests.standins.build import build_libcuda
from tests.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from typing import Unpack

    from gpud.agent.state.board import States
    from gpud.core.sample import ProbeSpec

pytestmark = pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")

READER = (
    "import json, sys\njob = json.loads(sys.stdin.readline())\n"
    "if job['gpu']: open({path!r}).read()\n"
    "print(json.dumps({{'probe': job['probe'], 'backend': 'cuda' if job['gpu'] else 'cpu'}}))"
)
Answer = TypeVar("Answer")

ON_GPU, ON_CPU = Job("launch", gpu=GPU), Job("cpu_call")
LAUNCH, CPU_CALL = launch.SPEC, cpu_call.SPEC


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("gpud.agent.measure.launch.time", made)
    return made


async def overdue(clock: Clock, stalled: Stalling, run: Coroutine[Any, Any, Answer]) -> Answer:
    """Let a run come to the file that does not answer, and its deadline pass."""
    task = asyncio.create_task(run)
    await asyncio.to_thread(stalled.waiting.wait, LIMIT_S)
    clock.leap()
    return await task


class StateBoard(Board):
    """A board that records the breaker's states."""

    def __init__(self) -> None:
        super().__init__(snapshots.bare())
        self.states: list[str] = []

    def publish(self, **states: Unpack[States]) -> None:
        super().publish(**states)
        standing = self.read().measure.breaker
        if standing is not None and self.states[-1:] != [standing.state]:
            self.states.append(standing.state)


class Agent:
    """A launcher and the board that it publishes on."""

    def __init__(self, lock: Path, **options: Any) -> None:
        self.board = StateBoard()
        self.launcher = Launcher(lock, board=self.board, grace_s=0.3, patience_s=0.3, **options)

    @property
    def state(self) -> str:
        return self.launcher.standing.state

    @property
    def children(self) -> int:
        return self.board.read().measure.children

    async def becomes(self, state: State) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.state is not state:
                self.board.changed.clear()
                await self.board.changed.wait()

    def metric(self, name: str, **labels: str) -> float | None:
        return next(
            (
                sample.value
                for family in text_string_to_metric_families(scrape(self.board.read()))
                for sample in family.samples
                if sample.name == name and sample.labels == labels
            ),
            None,
        )

    async def refuses(self, spec: ProbeSpec, job: Job) -> None:
        with pytest.raises(LaunchRefused) as caught:
            await self.launcher.run(spec, job)
        assert caught.value.skip is Skip.STUCK


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[Stalling]:
    with stalling(tmp_path / "stalling") as made:
        yield made


def stalls(stalled: Stalling) -> tuple[str, ...]:
    """Give a child that waits for the file whatever it is asked."""
    code = f"import sys\nsys.stdin.readline()\nopen({str(stalled.path)!r}).read()"
    return (sys.executable, "-I", "-c", code)


def reader(stalled: Stalling) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", READER.format(path=str(stalled.path)))


def test_driver_call_that_the_kernel_keeps_stops_gpu_work_until_it_ends(
    tmp_path: Path, stalled: Stalling, clock: Clock
) -> None:
    """The real child: SIGKILL reaches it inside cuInit, and it stays. Others run meanwhile."""
    library = build_libcuda(tmp_path, f"stall cuInit {stalled.path}")
    job = Job("launch", gpu=GPU, cuda_library=str(library), budget_s=100, start_limit_s=100)

    async def story() -> None:
        agent = Agent(tmp_path / "gpu.lock")
        agent.launcher.look()
        assert agent.metric("gpud_breaker_state", state="closed") == 1
        report = await overdue(clock, stalled, agent.launcher.run(LAUNCH, job))
        assert report.failure is not None
        assert report.failure.reason is Reason.HUNG
        assert re.search(r", state D.*\) does not go away", report.failure.detail)
        left = agent.launcher.breaker.left
        assert left is not None
        assert (children.condition(left) or "").startswith("state D")
        await agent.refuses(LAUNCH, ON_GPU)
        assert agent.children == 1
        assert agent.metric("gpud_gpu_stuck") == 1
        assert agent.metric("gpud_breaker_state", state="stuck") == 1
        assert agent.metric("gpud_breaker_state", state="closed") == 0
        health = agent.board.read().health["gpu"]
        assert (health.level, health.reason) == (Level.FAILED, "stuck")
        assert str(left.pid) in (health.detail or "")
        assert "wsl --shutdown" in (health.fix or "")
        stalled.answer()
        await agent.becomes(State.HALF_OPEN)
        assert processes.ref(left.pid) != left
        assert agent.metric("gpud_gpu_stuck") == 0
        good = await agent.launcher.run(LAUNCH, job)
        assert good.failure is None
        assert agent.board.states == [State.CLOSED, State.STUCK, State.HALF_OPEN, State.CLOSED]
        assert agent.metric("gpud_breaker_state", state="closed") == 1
        assert agent.board.read().health["gpu"].level is Level.OK

    clock.run(story())


def test_new_agent_finds_the_stuck_child_of_the_old_one(
    tmp_path: Path, stalled: Stalling, clock: Clock
) -> None:
    lock = tmp_path / "gpu.lock"

    async def story() -> None:
        old = Agent(lock, command=reader(stalled))
        await overdue(clock, stalled, old.launcher.run(LAUNCH, ON_GPU))
        left = old.launcher.breaker.left
        assert left is not None
        old.launcher.close()
        note = lock.read_text()
        other_boot = f"{left.pid} {left.start_ticks + 1} 0.0 launch"
        for line in ("", "garbage", f"{left.pid} {left.start_ticks} 1.0", other_boot):
            lock.write_text(line)
            misled = Agent(lock, command=reader(stalled))
            misled.launcher.look()
            assert misled.state is State.CLOSED, line
        lock.write_text(note)
        new = Agent(lock, command=reader(stalled))
        new.launcher.look()
        assert new.state is State.STUCK
        assert new.launcher.standing.process == left
        assert f"launch on {GPU}" in (new.launcher.standing.detail or "")
        assert new.metric("gpud_gpu_stuck") == 1
        await new.refuses(LAUNCH, ON_GPU)
        assert (await new.launcher.run(CPU_CALL, ON_CPU)).failure is None
        stalled.answer()
        await new.becomes(State.HALF_OPEN)
        assert (await new.launcher.run(LAUNCH, ON_GPU)).failure is None
        # The old one was told to look no more.
        assert {"old": old.state, "new": new.state} == {"old": State.STUCK, "new": State.CLOSED}

    clock.run(story())


@pytest.mark.parametrize(("job", "subject"), [(Job(), "inventory"), (ON_CPU, "cpu_call")])
def test_what_a_new_agent_finds_stuck_is_over_with_its_end(
    tmp_path: Path, stalled: Stalling, clock: Clock, job: Job, subject: str
) -> None:
    """The list of GPUs has to answer then; a probe of the CPU never touches the driver."""
    lock = tmp_path / "gpu.lock"

    async def story() -> None:
        old = Agent(lock, command=stalls(stalled))
        run = old.launcher.run(CPU_CALL, job) if job.probe else old.launcher.inventory(job)
        await overdue(clock, stalled, run)
        left = old.launcher.breaker.left
        assert left is not None
        old.launcher.close()
        new = Agent(lock, command=reader(stalled))
        new.launcher.look()
        assert new.launcher.breaker.left == left
        stalled.answer()
        await new.becomes(State.HALF_OPEN)
        assert (await new.launcher.run(LAUNCH, ON_GPU)).failure is None
        decided = State.HALF_OPEN if subject == "inventory" else State.CLOSED
        assert new.state is decided

    clock.run(story())


def test_run_in_progress_is_not_stuck(tmp_path: Path, stalled: Stalling, clock: Clock) -> None:
    """The same file, the same lock; only its time has not come yet."""

    async def story() -> None:
        old = Agent(tmp_path / "gpu.lock", command=reader(stalled))
        running = asyncio.create_task(old.launcher.run(LAUNCH, ON_GPU))
        await asyncio.to_thread(stalled.waiting.wait, LIMIT_S)
        new = Agent(tmp_path / "gpu.lock", command=reader(stalled))
        new.launcher.look()
        assert new.state is State.CLOSED
        with pytest.raises(LaunchRefused) as caught:
            await new.launcher.run(LAUNCH, ON_GPU)
        assert caught.value.skip is Skip.CHILD_RUNNING
        stalled.answer()
        assert (await running).failure is None

    clock.run(story())


def test_stuck_child_of_the_cpu_is_not_joined_by_others(
    tmp_path: Path, stalled: Stalling, clock: Clock
) -> None:
    """A folder of Python that does not answer: every further child would wait for it too."""

    async def story() -> None:
        agent = Agent(tmp_path / "gpu.lock", command=stalls(stalled))
        report = await overdue(clock, stalled, agent.launcher.run(CPU_CALL, ON_CPU))
        assert report.failure is not None
        assert report.failure.reason is Reason.HUNG
        left = agent.launcher.breaker.left
        for _ in range(3):
            await agent.refuses(CPU_CALL, ON_CPU)
        assert agent.children == 1
        assert agent.launcher.breaker.left == left
        stalled.answer()
        await agent.becomes(State.HALF_OPEN)
        assert (await agent.launcher.run(CPU_CALL, ON_CPU)).failure is not None
        assert agent.children == 2

    clock.run(story())


def test_stuck_child_of_the_cpu_leaves_the_gpus_own_watched(
    tmp_path: Path, stalled: Stalling, clock: Clock
) -> None:
    with_gpu = f"if job['gpu']: open({str(stalled.path)!r}).read()"

    async def story() -> None:
        with stalling(tmp_path / "other") as other:
            code = (
                f"import json, sys\njob = json.loads(sys.stdin.readline())\n{with_gpu}\n"
                f"open({str(other.path)!r}).read()"
            )
            agent = Agent(tmp_path / "gpu.lock", command=(sys.executable, "-I", "-c", code))
            await overdue(clock, stalled, agent.launcher.run(LAUNCH, ON_GPU))
            left = agent.launcher.breaker.left
            await overdue(clock, other, agent.launcher.run(CPU_CALL, ON_CPU))
            assert agent.launcher.breaker.left == left
            assert agent.launcher.standing.hangs == 1
            other.answer()
            gone, of_cpu = "the end of the child of the CPU", agent.launcher._cpu_left
            assert of_cpu is not None
            await asyncio.to_thread(until, lambda: processes.ref(of_cpu.pid) is None, gone)
            assert agent.state is State.STUCK
            stalled.answer()
            await agent.becomes(State.HALF_OPEN)

    clock.run(story())
