"""GPU contexts of whole days of virtual time, as the stand-in driver counts them: real children.

Time passes by itself while a round or a person's run goes on, and is skipped in between.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpud.agent import compose
from gpud.place import Place
from gpud.requests import ProbeRequest
from gpud.verbs import probe
from gpud.verbs.probe_outcome import ProbeOutcome
from tests.e2e.program import Program, cuda, nvml, only, program
from tests.e2e.test_boot import LINUX, WSL2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpud.agent.measure.schedule import Work
    from tests.e2e.program import Program


OPENED = "cuDevicePrimaryCtxRetain"
QUICK_GPU = "launch_ns 500\nsync_ns 1000\ngraph_launch_ns 1000\ngraph_node_ns 10\n"


class VirtualTime:
    """Both clocks of this process, which ``skipping`` sets ahead instead of waiting."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        self.busy = 1
        mono, wall = time.monotonic, time.time
        patch.setattr(time, "monotonic", lambda: mono() + self.ahead_s)
        patch.setattr(time, "time", lambda: wall() + self.ahead_s)

    @contextmanager
    def skipping(self) -> Iterator[None]:
        self.busy -= 1
        try:
            yield
        finally:
            self.busy += 1

    @contextmanager
    def passing(self) -> Iterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1


class _Selector(selectors.EpollSelector):
    """Descriptors of an event loop; while nobody works, its next timer is due at once."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._clock.busy or not timeout or timeout < 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._clock.ahead_s += timeout
        return ready


class _Agent(compose.Agent):
    """The agent without what it does each second: a day has 86,400 of them."""

    clock: VirtualTime

    def _plan(self) -> None:
        every = self.schedule.every

        def planned(interval_s: Any, name: str, job: Work, *args: object, **how: Any) -> None:
            async def work(*args: object) -> None:
                with self.clock.passing():
                    await job(*args)

            if name == "round":
                every(interval_s, name, work, *args, **how)

        self.schedule.every = planned  # type: ignore[method-assign]
        super()._plan()

    def _tasks(self) -> dict[str, Work]:
        tasks = super()._tasks()
        return {name: tasks[name] for name in ("changes", "regression", "socket")}


class Machine:
    """A machine of one boot; ``contexts`` are those that its driver has counted."""

    def __init__(
        self, gpud: Program, patch: pytest.MonkeyPatch, kernel: str, **settings: dict[str, Any]
    ) -> None:
        tree = gpud.home / "sysroot"
        (tree / "proc/sys/kernel").mkdir(parents=True)
        (tree / "proc/sys/kernel/osrelease").write_text(kernel)
        (tree / "proc/uptime").write_text("5000.00 1.00\n")
        self._log = gpud.home / "contexts"
        gpud.sysroot = str(tree)
        script = f"{QUICK_GPU}log {self._log} {OPENED}\n"
        drivers = {"cuda": cuda(gpud.home, script), "nvml": nvml(gpud.home)}
        gpud.settings = {"schedule": {}, **drivers, **settings}
        gpud.write_settings()
        self.settings = Place(str(gpud.home), gpud.config).settings()
        self.clock = VirtualTime(patch)
        self._gpud = gpud
        self.runs_by_hand = 0

    @property
    def contexts(self) -> int:
        return len(self._log.read_text().splitlines())

    @property
    def count(self) -> dict[str, Any]:
        """What gpud has counted."""
        text = (self._gpud.home / "var/lib/gpud/contexts.json").read_bytes()
        count: dict[str, Any] = json.loads(text)
        return count

    def live(self, for_s: float, by_hand: Sequence[float] = ()) -> None:
        """Start an agent and stop it after so long; a person runs a probe after ``by_hand``."""
        loop = lambda: asyncio.SelectorEventLoop(_Selector(self.clock))  # noqa: E731
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(self._life(for_s, by_hand))

    def run_by_hand(self) -> None:
        """Do what `gpud probe launch` does."""
        progress = probe.ProbeProgress(ProbeOutcome(repeats=1), shown=False)
        probe._measure(self.settings, ProbeRequest(names=("launch",)), progress)
        self.runs_by_hand += 1

    async def _life(self, for_s: float, by_hand: Sequence[float]) -> None:
        stop, own = asyncio.Event(), compose.prepare(self.settings)
        agent = _Agent(self.settings, self._gpud.config, own, stop)
        agent.clock = self.clock
        life, begun_s = asyncio.create_task(agent.run()), time.monotonic()
        for at_s in by_hand:
            with self.clock.skipping():
                await asyncio.sleep(begun_s + at_s - time.monotonic())
            await asyncio.to_thread(self.run_by_hand)
        with self.clock.skipping():
            await asyncio.sleep(begun_s + for_s - time.monotonic())
        async with agent.pipeline.turn:
            stop.set()
            await asyncio.sleep(0)
        await life


HOUR_S, DAY_S = 3600.0, 86400.0
ONE_PROBE = only("launch")


@pytest.fixture
def gpud() -> Iterator[Program]:
    with program() as made:
        yield made


def assert_counted(machine: Machine) -> None:
    """The agent has counted what its driver has."""
    assert machine.count["contexts"] == machine.contexts


@pytest.mark.parametrize(
    ("hours", "least", "most"), [(3, 24, 32), pytest.param(24, 140, 160, marks=pytest.mark.soak)]
)
def test_day_of_wsl2_makes_at_most_160_contexts_with_a_restart_and_runs_by_hand(
    gpud: Program, monkeypatch: pytest.MonkeyPatch, hours: int, least: int, most: int
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes=ONE_PROBE)
    machine.live(hours / 4 * HOUR_S, by_hand=[hours / 8 * HOUR_S])
    before = machine.contexts
    assert machine.count["rounds"] == before - machine.runs_by_hand
    machine.run_by_hand()
    assert machine.contexts == before + 1
    machine.live(hours * 3 / 4 * HOUR_S)
    assert least <= machine.contexts <= most
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_day_of_plain_linux_makes_a_context_a_round(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, LINUX, probes=ONE_PROBE)
    machine.live(DAY_S)
    assert machine.contexts == machine.count["rounds"] == pytest.approx(1440, abs=20)
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_week_of_wsl2_makes_at_most_300_contexts_with_a_restart_and_two_runs_by_hand_each_day(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes=ONE_PROBE)
    for _ in range(7):
        machine.live(DAY_S, by_hand=[8 * HOUR_S])
        machine.run_by_hand()
    assert machine.runs_by_hand == 14
    assert 220 <= machine.contexts <= 300
    assert_counted(machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_day_of_wsl2_with_all_probes_makes_a_context_a_round(
    gpud: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(gpud, monkeypatch, WSL2, probes={})
    machine.live(DAY_S)
    assert 140 <= machine.contexts <= 160
    assert_counted(machine)
