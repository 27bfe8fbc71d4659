"""A pipeline with scripts in the child's place, a real history and a real board."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from gpud.agent.history.schema import FILE
from gpud.agent.history.store import History
from gpud.agent.measure.clocks import ClockWatch
from gpud.agent.measure.conditions import Conditions, Observer
from gpud.agent.measure.gate import Gate
from gpud.agent.measure.gpu_contexts import GpuContexts
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.pace import Rounds, Turn, plan
from gpud.agent.measure.pipeline import Pipeline
from gpud.agent.measure.schedule import Schedule
from gpud.agent.state.board import Board
from gpud.agent.state.changes import ChangeDetection
from gpud.agent.telemetry.answers import Answer, Telemetry
from gpud.core.clock import Instant
from gpud.core.report import ContainersReport, ProbeStage
from gpud.core.sample import Pace, Reading
from gpud.core.sections import ScheduleSettings
from gpud.core.settings import Settings
from gpud.document.machine import Expected
from tests import snapshots
from tests.agent.regression.lives import regression
from tests.events import altered
from tests.snapshots import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from gpud.agent.state.snapshot import Snapshot
    from gpud.core.sample import ProbeSpec

CHILD = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
verb = sys.argv[2]
def noted(words):
    with (folder / "calls").open("a") as calls:
        calls.write(words + "\\n")
def device(index):
    return {"index": index, "uuid": f"GPU-{index}", "name": "n", "pci_bus_id": "b",
            "compute_capability": said().get("capability", "8.9"), "sm_count": 1,
            "l2_bytes": 1, "memory_total_bytes": 1}
spec = {"unit": "seconds", "modes": ["m"], "budget_s": 10.0, "summary": "s"}
def said():
    return json.loads((folder / "state").read_text())
if verb == "--list":
    noted(verb)
    state = said()
    print(json.dumps({"refused": state.get("refused", {}), "probes": [
        {**spec, "name": n, "backend": b, "pace": p, **dict(*more)}
        for n, b, p, *more in state["specs"]]}))
    sys.exit()
noted("begun")
for line in sys.stdin:
    state, job = said(), json.loads(line)
    if "caches" in state:
        noted(f"cache {job['cache_dir']}")
    if not job["probe"]:
        noted("inventory")
        devices = [device(index) for index in range(state["gpus"])]
        print(json.dumps({"failure": state.get("failure"), "devices": devices}), flush=True)
        continue
    noted(f"run {job['probe']} {job['gpu']}" + (f" {job['peer']}" if job["peer"] else ""))
    if job["probe"] in state.get("crashing", ()):
        os.kill(os.getpid(), signal.SIGSEGV)
    if job["left_out"]:
        noted(f"left out {sorted(job['left_out'])}")
    backend = next(b for n, b, *_ in state["specs"] if n == job["probe"])
    broken = {"reason": state["broken"], "detail": "d"} if "broken" in state else None
    print(json.dumps({"probe": job["probe"], "backend": backend, "failure": broken,
        "device": device(int(job["gpu"][4:])) if job["gpu"] else None,
        "vram_peak_bytes": state.get("vram", 0), "conditions": state.get("conditions", {})}),
        flush=True)
"""
SPECS = [
    ["cpu_call", "cpu", "small"],
    ["launch", "cuda", "small"],
    ["cpu_matmul", "cpu", "large"],
    ["triad", "cuda", "large"],
]
IDLE = Conditions(
    utilization_gpu_ratio=0.0,
    memory_free_bytes=4.0 * (1 << 30),
    temperature_celsius=40.0,
    clock_sm_hertz=2e9,
    ac=True,
)
BUSY = replace(IDLE, utilization_gpu_ratio=0.35)
SLOW = replace(IDLE, clock_sm_hertz=1.5e9)


class _Circumstances(Board):
    """The board of a bench, on which the bench's circumstances hold."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(snapshots.bare())
        self._bench = bench

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def read(self) -> Snapshot:
        bench, snapshot = self._bench, super().read()
        readings = tuple(Reading(None, name, value, "nvml") for name, value in bench.driver.items())
        answers = {"nvml": Answer("nvml", 5, 1.0, 1.0, readings)}
        if bench.taken:
            status = ContainersReport(ProbeStage.RUNNING, "image")
            snapshot = altered(snapshot, report=structs.replace(ROOT, containers=status))
        return altered(
            snapshot,
            platform=bench.driver,
            telemetry=Telemetry(answers if readings else {}),
            expected={"GPU-9": Expected("gone", 1.0)} if bench.missed else {},
            resumed_mono_s=bench.resumed_s,
        )


class Of(Rounds):
    """Rounds of these paces, with every probe of theirs."""

    def __init__(self, *paces: Pace) -> None:
        super().__init__(
            plan(ScheduleSettings(), wsl2=False, on_battery="seldom"), GpuContexts(Path(), "", None)
        )
        self._paces = paces

    def begin(
        self,
        specs: Sequence[ProbeSpec],
        now_s: float,  # noqa: ARG002  # always
        costs_s: Mapping[str, float],  # noqa: ARG002  # whatever they cost
        *,
        on_battery: bool,  # noqa: ARG002  # likewise
    ) -> Turn:
        due = [spec for spec in specs if spec.pace in self._paces]
        return Turn(due, Pace.LARGE in self._paces)


class Later(Rounds):
    """Rounds that begin so much later than they do."""

    later_s = 0.0

    def begin(
        self,
        specs: Sequence[ProbeSpec],
        now_s: float,
        costs_s: Mapping[str, float],
        *,
        on_battery: bool,
    ) -> Turn:
        return super().begin(specs, now_s + self.later_s, costs_s, on_battery=on_battery)


def paced(contexts: GpuContexts | Path, *, wsl2: bool = False, **settings: Any) -> Later:
    """Rounds as an agent has them; the contexts of a boot without a budget by their folder."""
    on_battery = settings.pop("on_battery", "seldom")
    planned = plan(ScheduleSettings(**settings), wsl2=wsl2, on_battery=on_battery)
    if isinstance(contexts, Path):
        contexts = GpuContexts(contexts, "boot", None)
    return Later(planned, contexts)


class _Looks(Observer):
    """Conditions as the bench has them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def look(self, uuid: str | None) -> Conditions:
        return await self._bench.look(uuid)


def pipeline_of(  # noqa: PLR0917
    settings: Settings,
    launcher: Launcher,
    history: History,
    board: Board,
    observer: Observer,
    now: Callable[[], Instant] = lambda: Instant(1.0, 1.0),
) -> Pipeline:
    return Pipeline(
        settings,
        launcher=launcher,
        gate=Gate(settings.gate, observer, history, board, now),
        clock_watch=ClockWatch(board, Schedule(board), launcher, now()),
        history=history,
        regression=regression(history),
        changes=ChangeDetection(history, board, now, "boot"),
        board=board,
        now=now,
        boot_id="boot",
    )


class Stored(NamedTuple):
    """A run in the history."""

    probe: str
    gpu: str | None
    flags: list[str]
    conditions: dict[str, Any]


@dataclass
class Bench:
    """A pipeline with everything it joins; what comes out of it is on the board and on the disk."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    state_dir: Path | None = None
    clock: list[Instant] = field(default_factory=list)
    taken: bool = False
    missed: bool = False  # a GPU that was here is gone
    looks: list[Conditions] = field(default_factory=list)  # the last one stays
    looked: list[str | None] = field(default_factory=list)  # of which GPU each look was
    resumed_s: float | None = None
    contexts: GpuContexts | None = None
    driver: dict[str, str] = field(default_factory=dict)  # what is known beside a run

    def __post_init__(self) -> None:
        (self.folder / "child.py").write_text(CHILD)
        self.board = _Circumstances(self)
        self.says(gpus=1)

    def says(self, **state: object) -> None:
        (self.folder / "state").write_text(json.dumps({"specs": SPECS, "gpus": 1, **state}))

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.rstrip() for line in lines]

    def now(self) -> Instant:
        return self.clock.pop(0) if self.clock else Instant(1.0, 1.0)

    async def look(self, uuid: str | None) -> Conditions:
        self.looked.append(uuid)
        if uuid is None or not self.looks:
            return Conditions()
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def make(self) -> tuple[Pipeline, History]:
        command = (sys.executable, "-I", str(self.folder / "child.py"), str(self.folder))
        history = History(self.state_dir or self.folder)
        launcher = Launcher(self.folder / "gpu.lock", command=command, contexts=self.contexts)
        self.board = board = _Circumstances(self)
        return pipeline_of(self.settings, launcher, history, board, _Looks(self), self.now), history

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[Pipeline]:
        """An agent's pipeline, whose history is written to the end."""
        pipeline, history = self.make()
        yield pipeline
        await history.close()

    def rounds(self, *paces: Pace) -> Snapshot:
        async def story() -> None:
            async with self.pipeline() as pipeline:
                for pace in paces:
                    await pipeline.round(Of(pace))

        asyncio.run(story())
        return self.board.read()

    def stored(self, probe: str | None = None) -> list[Stored]:
        """The runs in the history, in the order of writing; of one probe if it is named."""
        with closing(sqlite3.connect((self.state_dir or self.folder) / FILE)) as database:
            rows = database.execute("SELECT probe, gpu_uuid, flags, conditions FROM runs")
            runs = [Stored(*row[:2], *map(json.loads, row[2:])) for row in rows]
        return [run for run in runs if probe in {None, run.probe}]


class Clocked(Bench):
    """A bench whose clocks are the test's: they move on by a step with each look at them."""

    moment_s = 1000.0
    step_s = 1.0
    ahead_s = 0.0  # the wall clock

    def now(self) -> Instant:
        self.moment_s += self.step_s
        return Instant(1.7e9 + self.moment_s + self.ahead_s, self.moment_s)


def runs(bench: Bench) -> list[str]:
    """The runs that were started since the last call."""
    calls = [call.removeprefix("run ") for call in bench.calls() if call.startswith("run ")]
    return [call.removesuffix(" None") for call in calls]
