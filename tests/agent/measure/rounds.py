"""A pipeline with scripts in the child's place, a real history and a board that records."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gpud.agent.history.store import History
from gpud.agent.measure.conditions import Conditions, Observer
from gpud.agent.measure.gatekeeper import Gatekeeper
from gpud.agent.measure.launch import Launcher
from gpud.agent.measure.pipeline import Pipeline
from gpud.agent.state.board import Board
from gpud.agent.state.changes import ChangeDetection
from gpud.agent.state.snapshot import Expected, Snapshot
from gpud.agent.telemetry.answers import Answer, Telemetry
from gpud.core.clock import Instant
from gpud.core.report import ContainersReport, ProbeStage
from gpud.core.sample import Reading
from gpud.core.settings import Settings
from tests.agent.regression.lives import regression
from tests.events import altered, made
from tests.snapshots import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Unpack

    from gpud.agent.state.board import States
    from gpud.agent.state.snapshot import MeasureState
    from gpud.core.health import Health
    from gpud.core.sample import Device, Flag, Pace, ProbeSpec, RunReport, Skip

T = TypeVar("T")

CHILD = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
state = json.loads((folder / "state").read_text())
verb = sys.argv[2]
job = {} if verb == "--list" else json.load(sys.stdin)
with (folder / "calls").open("a") as calls:
    calls.write(f"{verb} {job.get('probe', '')} {job.get('gpu', '')}\\n")
def device(index):
    return {"index": index, "uuid": f"GPU-{index}", "name": "n", "pci_bus_id": "b",
            "compute_capability": "8.9", "sm_count": 1, "l2_bytes": 1, "memory_total_bytes": 1}
spec = {"unit": "seconds", "modes": ["m"], "budget_s": 10.0, "summary": "s"}
if verb == "--list":
    print(json.dumps({"refused": state.get("refused", {}), "probes": [
        {**spec, "name": n, "backend": b, "pace": p, **dict(*more)}
        for n, b, p, *more in state["specs"]]}))
elif verb == "--inventory":
    devices = [device(index) for index in range(state["gpus"])]
    print(json.dumps({"failure": state.get("failure"), "devices": devices}))
else:
    backend = next(b for n, b, *_ in state["specs"] if n == job["probe"])
    broken = {"reason": state["broken"], "detail": "d"} if "broken" in state else None
    print(json.dumps({"probe": job["probe"], "backend": backend, "failure": broken,
        "device": device(int(job["gpu"][4:])) if job["gpu"] else None,
        "vram_peak_bytes": state.get("vram", 0), "conditions": state.get("conditions", {})}))
"""
SPECS = [
    ["cpu_call", "cpu", "small"],
    ["launch", "cuda", "small"],
    ["cpu_matmul", "cpu", "large"],
    ["triad", "cuda", "large"],
]


@dataclass(frozen=True)
class Finished:
    """A run that was published."""

    report: RunReport
    gpu: str | None  # its UUID
    flags: tuple[Flag, ...]


@dataclass(frozen=True)
class Skipped:
    """A skip that was counted."""

    probe: str
    reason: Skip
    gpu: str | None
    starving: bool


@dataclass(frozen=True)
class ProbesListed:
    """The probes that were listed."""

    specs: tuple[ProbeSpec, ...]


@dataclass(frozen=True)
class GpusListed:
    """The GPUs that CUDA listed."""

    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Reported:
    """The health that a component reported."""

    component: str
    health: Health


Entry: TypeAlias = Finished | Skipped | ProbesListed | GpusListed | Reported


def _uuids(snapshot: Snapshot) -> dict[int | None, str]:
    return {gpu.number: uuid for uuid, gpu in snapshot.gpus.items()}


def entries(before: MeasureState, snapshot: Snapshot) -> Iterator[Entry]:
    now, uuids = snapshot.measure, _uuids(snapshot)
    for key, state in now.probes.items():
        if state is not before.probes.get(key) and state.report is not None:
            yield Finished(state.report, uuids.get(key.gpu), state.flags)
    for key, row in now.put_off.items():
        if row is not before.put_off.get(key):
            yield Skipped(key.probe, row.reason, uuids.get(key.gpu), row.starving)
    if now.specs is not before.specs:
        yield ProbesListed(now.specs)
    if now.inventory is not before.inventory and now.inventory is not None:
        yield GpusListed(now.inventory.devices)


class RecordingBoard(Board):
    """A board that records what was published, one entry for each."""

    def __init__(self, first: Snapshot | None = None) -> None:
        super().__init__(first or made())
        self.events: list[Entry] = []

    def publish(self, **states: Unpack[States]) -> None:
        before = Board.read(self)
        super().publish(**states)
        self.events += entries(before.measure, Board.read(self))

    def set_health(self, component: str, value: Health) -> None:
        self.events.append(Reported(component, value))
        super().set_health(component, value)

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot


class _Circumstances(RecordingBoard):
    """The board of a bench, on which the bench's circumstances hold."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.events = bench.events

    def read(self) -> Snapshot:
        bench, snapshot = self._bench, super().read()
        readings = tuple(Reading(None, name, value, "nvml") for name, value in bench.driver.items())
        answers = {"nvml": Answer("nvml", 5, 1.0, 1.0, readings)}
        if bench.taken:
            status = ContainersReport(ProbeStage.RUNNING, "image")
            snapshot = altered(snapshot, report=replace(ROOT, containers=status))
        return altered(
            snapshot,
            platform=bench.driver,
            telemetry=Telemetry(answers if readings else {}),
            expected={"GPU-9": Expected("gone", 1.0)} if bench.missed else {},
            resumed_mono_s=bench.resumed_s,
        )


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
        gate=Gatekeeper(settings.gate, observer, history, board, now),
        history=history,
        regression=regression(history),
        changes=ChangeDetection(history, board, now, "boot"),
        board=board,
        now=now,
        boot_id="boot",
    )


@dataclass
class Bench:
    """A pipeline with everything it joins, and what came out of it."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    state_dir: Path | None = None
    events: list[Entry] = field(default_factory=list)
    clock: list[Instant] = field(default_factory=list)
    taken: bool = False
    missed: bool = False  # a GPU that was here is gone
    looks: list[Conditions] = field(default_factory=list)  # the last one stays
    asked: list[str | None] = field(default_factory=list)  # of which GPU each look was
    resumed_s: float | None = None
    driver: dict[str, str] = field(default_factory=dict)  # what is known beside a run

    def __post_init__(self) -> None:
        (self.folder / "child.py").write_text(CHILD)
        self.board: RecordingBoard = _Circumstances(self)
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
        self.asked.append(uuid)
        if uuid is None or not self.looks:
            return Conditions()
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def make(self) -> tuple[Pipeline, History]:
        command = (sys.executable, "-I", str(self.folder / "child.py"), str(self.folder))
        history = History(self.state_dir or self.folder)
        launcher = Launcher(self.folder / "gpu.lock", command=command)
        self.board = board = _Circumstances(self)
        return pipeline_of(self.settings, launcher, history, board, _Looks(self), self.now), history

    def rounds(self, *paces: Pace) -> Snapshot:
        async def story() -> None:
            pipeline, history = self.make()
            for pace in paces:
                await pipeline.round(pace)
            await history.close()

        asyncio.run(story())
        return Board.read(self.board)

    def of(self, kind: type[T]) -> list[T]:
        return [entry for entry in self.events if isinstance(entry, kind)]
